"""Right verifiers that look different: another precision, order, formula, scheme or kind of array.

`--impl=adapters.harmless.acceptance:Name` names any of them; the suite must not refute one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from adapters.faulty.chain import BlackBox, Chain, Row, Trial
from adapters.interface import AdapterError, Arithmetic
from oracle.types import Coins, Decision, VerifyCase


@dataclass(frozen=True)
class Published:
    """A decision in arrays of the implementation's own kind."""

    path: Any
    frontier: Any


class Float32(Chain, arithmetic=Arithmetic(dtype="float32", coin_dtype="float32")):
    """Computes in float32, and says so."""

    @classmethod
    def row(cls, rows: Any, index: int) -> Row:
        return super().row(rows.astype(np.float32), index)

    @classmethod
    def accepts(cls, trial: Trial) -> bool:
        return bool(np.float32(trial.u) * np.float32(trial.q) < np.float32(trial.p))

    @classmethod
    def residual(cls, trial: Trial) -> Row:
        target, draft = (np.array(row, dtype=np.float32) for row in (trial.target, trial.draft))
        left = np.maximum(target - draft, np.float32(0))
        residual: Row = (left / max(left.sum(), np.finfo(np.float32).tiny)).tolist()
        return residual if any(left) else trial.target

    @classmethod
    def pick(cls, law: Row, coin: float) -> int:
        reached = np.flatnonzero(np.float32(coin) < np.cumsum(law, dtype=np.float32))
        return int(reached[0]) if len(reached) else int(np.flatnonzero(law)[-1])


class DividesFirst(Chain):
    """Accepts where p/q > u."""

    @classmethod
    def accepts(cls, trial: Trial) -> bool:
        return trial.p / trial.q > trial.u if trial.q > 0 else trial.p > 0


class LogSpace(Chain, arithmetic=Arithmetic(via_logits=True, draft_via_logits=True)):
    """Accepts where log u + log q < log p."""

    @classmethod
    def accepts(cls, trial: Trial) -> bool:
        u, q, p = (math.log(value) if value > 0 else -math.inf for value in (trial.u, trial.q, trial.p))
        return u + q < p


class ScaledCoin(Chain):
    """Leaves (p − q)+ as it is and scales the coin by its mass."""

    @classmethod
    def recovered(cls, trial: Trial) -> int:
        left = [max(p - q, 0.0) for p, q in zip(trial.target, trial.draft)]
        return cls.pick(left, trial.coins.frontier * sum(left)) if any(left) else super().recovered(trial)


class AllTestsAtOnce(Chain):
    """Tests all drafts in one comparison, as a kernel does, and keeps those before the first rejection."""

    @classmethod
    def sampled(cls, case: VerifyCase, coins: Coins) -> Decision:
        tokens, nodes = cls.tokens(case), np.arange(len(case.token))
        p, q = case.target_probs[nodes, tokens], np.ones(len(nodes))
        if case.proposal != "point" and case.draft_probs is not None:
            q = case.draft_probs[nodes, tokens]
        accepted = int(np.cumprod(coins.accept * q < p).sum())
        stop = Coins(np.where(nodes < accepted, 0.0, coins.accept), coins.frontier)
        return super().sampled(case, stop)  # NaN, residual and bonus are matters of the walk


class SampleAndMatch(Chain, conventions={"coin_scheme": "sample_and_match"}):
    """Draws from the target row and accepts a draft that is the token drawn."""

    @classmethod
    def accepts(cls, trial: Trial) -> bool:
        return cls.pick(trial.target, trial.u) == trial.token

    @classmethod
    def recovered(cls, trial: Trial) -> int:
        return cls.pick(trial.target, trial.u)


class MembersInReverse(Chain, promises=("seed", "batch_independent")):
    """Decides the last member first, each with a generator of its own."""

    @classmethod
    def own_coins(cls, cases: Sequence[VerifyCase], seed: int) -> list[Coins]:
        generators = [np.random.default_rng([seed, i]) for i in range(len(cases))]
        return [Coins(g.random(len(case.token)), float(g.random())) for case, g in zip(cases, generators)]

    @classmethod
    def decide(cls, cases: Sequence[VerifyCase], coins: Sequence[Coins]) -> list[Decision]:
        return super().decide(cases[::-1], coins[::-1])[::-1]


class OnlyABlackBox(BlackBox):
    """Takes no coins and has no greedy verification."""


class _OtherArrays(Chain):
    """Publishes what `convert` makes of its decisions."""

    @classmethod
    def convert(cls, decision: Decision) -> Any:
        return decision

    @classmethod
    def decide(cls, cases: Sequence[VerifyCase], coins: Sequence[Coins]) -> list[Decision]:
        return [cls.convert(decision) for decision in super().decide(cases, coins)]

    @classmethod
    def verify_greedy(cls, cases: Sequence[VerifyCase]) -> list[Decision]:
        return [cls.convert(decision) for decision in super().verify_greedy(cases)]


class Lists(_OtherArrays):
    """Publishes lists."""

    @classmethod
    def convert(cls, decision: Decision) -> Any:
        return Published(list(decision.path), [decision.frontier])


class Int32(_OtherArrays):
    """Publishes vectors and scalars of int32."""

    @classmethod
    def convert(cls, decision: Decision) -> Any:
        return Published(np.array(decision.path, dtype=np.int32), np.int32(decision.frontier))


class Tensor:
    """An array that shows its memory by DLPack and nothing else."""

    def __init__(self, values: object) -> None:
        self._memory = np.array(values, dtype=np.int64)

    def __dlpack__(self, **options: Any) -> Any:
        return self._memory.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._memory.__dlpack_device__()


class DlpackTensors(_OtherArrays):
    """Publishes tensors that speak DLPack."""

    @classmethod
    def convert(cls, decision: Decision) -> Any:
        return Published(Tensor(decision.path), Tensor(decision.frontier))


class TorchTensors(_OtherArrays):
    """Publishes tensors of torch, where it is installed."""

    @classmethod
    def convert(cls, decision: Decision) -> Any:
        try:
            import torch
        except ImportError as error:
            raise AdapterError("TorchTensors needs torch") from error
        return Published(torch.tensor(decision.path, dtype=torch.int64), torch.tensor(decision.frontier))
