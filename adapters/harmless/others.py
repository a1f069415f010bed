"""Right warpers, proposers and block verifiers that look different; the suite must not refute one."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np

from adapters.faulty.proposing import Proposer
from adapters.faulty.schemes import _Block
from adapters.faulty.warping import Given, Row, Warper
from adapters.interface import Arithmetic, Declaration, NotApplicable
from oracle.types import ProposalCase, Proposals, WarpCase

ORDER = "temperature,top_k,top_p,min_p"


def warper(name: str, order: str = ORDER, ties: str = "exact", dtype: str = "float64") -> Declaration:
    conventions = {"filter_order": order, "top_k_ties": ties}
    return Declaration(name, "1", conventions=conventions, arithmetic=Arithmetic(dtype=dtype), cost={"warp": 5e-5})


class WarpsInFloat32:
    """Warps whole arrays in float32, and says so."""

    DECLARATION = warper("WarpsInFloat32", dtype="float32")

    @staticmethod
    def warp(case: WarpCase) -> np.ndarray:
        logits = np.atleast_2d(case.logits).astype(np.float32)
        if (np.isnan(logits) | (logits == np.inf)).any() or (logits == -np.inf).all(axis=1).any():
            raise ValueError("no rows of logits")
        count, size = logits.shape
        at = np.arange(count)[:, None]
        t, k, p, m = (
            np.broadcast_to(np.asarray(v, dtype=np.float32), (count,))[:, None]
            for v in (case.temperature, case.top_k, case.top_p, case.min_p)
        )
        order = np.argsort(-logits, axis=1, kind="stable")
        ranked = np.take_along_axis(logits, order, axis=1)
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = (ranked - ranked[:, :1]) / np.where(t == 0, np.float32(1), t)
        weights = np.exp(scaled)
        weights[(np.arange(size)[None] >= np.where((k == 0) | (k > size), size, k)) & (weights > 0)] = 0
        weights[np.broadcast_to((t == 0) & (np.arange(size)[None] > 0), weights.shape)] = 0
        law = weights / weights.sum(axis=1, keepdims=True, dtype=np.float32)
        before = np.cumsum(law, axis=1, dtype=np.float32) - law
        law[(before >= p) & (p < 1)] = 0
        law[law < m * law[:, :1]] = 0
        law /= law.sum(axis=1, keepdims=True, dtype=np.float32)
        found = np.zeros_like(law)
        found[at, order] = law
        shaped: np.ndarray = found.reshape(case.logits.shape)
        return shaped


class _Declared(Warper):
    """Base of the warpers whose conventions are other ones, and declared."""

    declared: ClassVar[tuple[str, str]] = (ORDER, "exact")

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.DECLARATION = warper(cls.__name__, *cls.declared)


class FiltersBeforeTheTemperature(_Declared):
    """Filters first and divides by the temperature afterwards, as declared."""

    declared = ("top_k,top_p,min_p,temperature", "exact")
    order = ("top_k", "top_p", "min_p", "temperature")


class JointTopKAndTopP(_Declared):
    """Applies top-k and top-p to the same law, as declared."""

    declared = ("temperature,top_k+top_p,min_p", "exact")
    order = ("temperature", "top_p", "top_k", "min_p")  # survivors of both are those of top-k among those of top-p


class KeepsTies(_Declared):
    """Keeps every token tied with the k-th, as declared."""

    declared = (ORDER, "keep")

    @classmethod
    def top_k(cls, law: Row, kept: list[int], given: Given) -> int:
        count = min(given.top_k or len(kept), len(kept))
        return sum(law[v] >= law[kept[count - 1]] for v in kept)


class KnowsNoMinP(_Declared):
    """Has no min-p, declares an order without it, and refuses what asks for it."""

    declared = ("temperature,top_k,top_p", "exact")

    @classmethod
    def warp(cls, case: WarpCase) -> np.ndarray:
        if np.any(np.asarray(case.min_p) != 0):
            raise NotApplicable("it has no min-p")
        return super().warp(case)


class GumbelProposer(Proposer):
    """Draws by the largest of log q plus Gumbel noise, siblings without replacement from one race."""

    @classmethod
    def uniforms(cls, generator: np.random.Generator, trials: int, siblings: list[int]) -> np.ndarray:
        return generator.random((trials, 64))

    @classmethod
    def pick(cls, law: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore"):
            raced: np.ndarray = np.log(law) - np.log(-np.log(uniforms[:, : law.shape[1]]))
        found: np.ndarray = raced.argmax(axis=1)
        return found


class OtherLayouts(Proposer):
    """Returns int32 tokens and lays its rows out node by node."""

    @classmethod
    def declare(cls, case: ProposalCase, token: np.ndarray, rows: np.ndarray) -> Proposals:
        return Proposals(token.astype(np.int32), np.asfortranarray(rows))


class Float32Proposals(Proposer):
    """Draws from float32 rows and declares them."""

    @classmethod
    def row(cls, case: ProposalCase, prefix: tuple[int, ...]) -> np.ndarray:
        return super().row(case, prefix).astype(np.float32).astype(np.float64)

    @classmethod
    def declare(cls, case: ProposalCase, token: np.ndarray, rows: np.ndarray) -> Proposals:
        return Proposals(token, rows.astype(np.float32))


Float32Proposals.DECLARATION = dataclasses.replace(Float32Proposals.DECLARATION, arithmetic=Arithmetic(dtype="float32"))


class PointsAlone(Proposer):
    """Knows point proposals on chains, and nothing else."""

    @classmethod
    def propose(cls, case: ProposalCase) -> Proposals:
        if case.proposal != "point" or case.parent.tolist() != list(range(-1, len(case.parent) - 1)):
            raise NotApplicable("it proposes the most probable chain")
        return super().propose(case)


class BlockVerification(_Block, conventions={"coin_scheme": "block"}):
    """Block verification, written apart from the oracle."""
