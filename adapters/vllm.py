"""vLLM's V1 rejection sampler on a CPU, a ragged batch of chains in one engine call.

The code under test is `vllm.v1.sample.rejection_sampler`, called as the model runner calls it, with a real
`Sampler` for the bonus token and `RejectionSampler.parse_output` for the result. Three variants, each with its
own `DECLARATION` and the operations `verify_greedy`, `verify_sampled`, `verify_random`; the last two have `warp`,
which `adapters.vllm_warp` describes:

- `adapters.vllm`: the CPU build's C++ kernels through `rejection_sample`, the bonus token sampled by the
  `Sampler` as `forward` does it, the temperature step left out. So it has no `warp`.
- `adapters.vllm:forward`: the same kernels through the whole of `forward`. Its temperature step divides by
  memory that nobody wrote (vllm-project/vllm#55005), which hides everything after it.
- `adapters.vllm:triton`: the Triton kernels that run on GPUs, executed by Triton's interpreter
  (`TRITON_INTERPRET=1`), through `forward`. Slow. `adapters.vllm_interpreter` says what is added to the interpreter.

Publication by `adapters.vllm` and `adapters.vllm:triton` is in `adapters/vllm_publish.py`.

The V2 model runner's sampler, `adapters.vllm:v2` and `adapters.vllm:v2_block`, is in `adapters.vllm_v2`. The whole
engine, `adapters.vllm:eagle` and its like, is in `adapters.vllm_generate`; what it counts and logs of its rounds,
`adapters.vllm:metrics`, is in `adapters.vllm_metrics`; its drafters' numeric step, `adapters.vllm:drafter`, in
`adapters.vllm_drafter`.

`triton` cannot share a process with the first two: the first call decides, a later call of the other kind
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

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from adapters import vllm_publish, vllm_warp
from adapters.interface import Arithmetic, Declaration, Deviation
from adapters.vllm_cases import chain, check_coins, frontier_seeds, logits, request_seeds, version
from adapters.vllm_drafter import drafter
from adapters.vllm_engine import Engine, injected, sampling_metadata, without_luck
from adapters.vllm_engine import engine as start_engine
from adapters.vllm_generate import eagle, eagle3, eagle3_expanded, eagle_expanded
from adapters.vllm_metrics import metrics
from adapters.vllm_v2 import v2, v2_block
from oracle.types import Coins, CommittedState, Decision, PublishCase, VerifyCase, WarpCase

__all__ = [
    "DECLARATION",
    "drafter",
    "eagle",
    "eagle3",
    "eagle3_expanded",
    "eagle_expanded",
    "forward",
    "metrics",
    "publish",
    "triton",
    "v2",
    "v2_block",
    "verify_greedy",
    "verify_random",
    "verify_sampled",
]

_TEMPERATURE = "https://github.com/vllm-project/vllm/issues/55005"
_EVERYWHERE = (
    Deviation(
        "ACCEPTANCE-108",
        "NaN rows are decided like others: a comparison with NaN rejects, and argmax of NaN is a token",
        witness="nan_at_the_root",
        fixtures=("4164c5401c40", "54112da8b1ca", "d2b2c6286fc6", "958f0575baab", "346cd0671afa"),
    ),
    Deviation(
        "ACCEPTANCE-302",
        "the accept test is p/q >= u, so the coin zero accepts a draft that the target rules out",
        witness="impossible_draft_at_coin_zero",
        fixtures=("1d8b1682f7cd",),
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
        fixtures=("b9dd20c46588",),
    ),
)
_PADDING = Deviation(
    "ACCEPTANCE-109",
    "the C++ kernel has no test for −1: it reads the row before, and parse_output drops the accepted −1",
    witness="padded_draft",
    fixtures=("fbd9d521e2a6", "dca169edab9d", "64a3540ebb6c"),
)
_LEAST = "the search for top-p's threshold ends above the least probability, so that token never survives"
_FILTERS = (
    Deviation(
        "ACCEPTANCE-1011",
        "where all logits are equal, neither top-k nor top-p is applied",
        witness="all_tokens_tied",
        fixtures=("82adc0daac69",),
    ),
    *(
        Deviation(f"ACCEPTANCE-{n}", _LEAST, witness=witness, fixtures=tuple(shown))
        for n, witness, *shown in (
            (1007, "nucleus_of_all_tokens", "e2281ae2782b"),
            (1009, "nucleus_of_all_tokens"),
            (1010, "nucleus_of_all_unmasked_tokens"),
            (1012, "heated_nucleus_of_all_tokens"),
            (1013, "nuclei_of_all_tokens_side_by_side"),
            (1014, "nucleus_of_all_tokens_beside_others"),
        )
    ),
)
_VERIFICATION = (109, 110, 303, 304, 401, 402, 403, 501, 502, 503, 601, 602, 603, 606, 607, 610, 701)
_WARPING = (1001, 1002, 1003, 1005, 1006, 1007, 1009, 1010, 1011, 1012, 1013, 1014)
# Target logits are divided by memory that the CPU build's expand kernel never wrote, and top-k and top-p are read
# from such memory: nothing sampled holds.
_BEHIND_TEMPERATURE = tuple(
    Deviation(f"ACCEPTANCE-{n}", "sampling parameters are read from memory that nobody wrote", link=_TEMPERATURE)
    for n in (*_VERIFICATION, *_WARPING)
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
        version=version(),
        links=(
            "https://github.com/vllm-project/vllm/blob/main/vllm/v1/sample/rejection_sampler.py",
            "https://github.com/vllm-project/vllm/blob/main/vllm/utils/cpu_triton_utils.py",
        ),
        conventions={
            "coin_scheme": "per_node",
            "frontier_coin": "own",
            "accept_operator": "<=",
            "filter_order": "temperature,top_k,top_p",
            "top_k_ties": "exact",
        },
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
    with without_luck():
        return _forward(engine, metadata, draft_probs, logits, sampling)


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
    check_coins(cases, coins)
    return _verify(start_engine(kind), reach, cases, frontier_seeds(coins), coins)


def _verify_random(kind: str, reach: Reach, cases: Sequence[VerifyCase], seed: int) -> list[Decision]:
    return _verify(start_engine(kind), reach, cases, request_seeds(seed, len(cases)), None)


def _verify(
    engine: Engine,
    reach: Reach,
    cases: Sequence[VerifyCase],
    seeds: np.ndarray | None,
    coins: Sequence[Coins] | None,
) -> list[Decision]:
    """One engine call for each vocabulary size; greedy where there are no seeds."""
    drafts = [chain(case) for case in cases]
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
    rows_of = logits(np.concatenate([np.asarray(case.target_probs, dtype=np.float64) for case in cases]))
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
            torch.from_numpy(rows_of),
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


class _Variant:
    """A namespace with the operations; `--impl=adapters.vllm:<name>`."""

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


class _Whole(_Variant):
    """One that keeps the temperature step."""

    def warp(self, case: WarpCase) -> np.ndarray:
        with without_luck() if self._kind == "cpp" else nullcontext():
            return vllm_warp.warp(start_engine(self._kind), case)


class _Interpreted(_Whole):
    """One that publishes, too."""

    def publish(self, cases: Sequence[PublishCase]) -> list[CommittedState]:
        return vllm_publish.publish("triton", cases)


_CPP_COST = {"verify_greedy": 2e-5, "verify_sampled": 5e-5, "verify_random": 8e-5, "warp": 1e-3}
_TRITON_COST = {"verify_greedy": 6e-4, "verify_sampled": 5e-3, "verify_random": 5e-3, "warp": 5e-3}
_BOTH = ("seed", "batch_independent")

_own = _Variant(
    _declare(
        "vllm",
        "float32",
        _CPP_COST | vllm_publish.CPP_COST,
        _BOTH,
        (*_EVERYWHERE, _PADDING, *vllm_publish.DEVIATIONS),
    ),
    "cpp",
    _behind_temperature,
)
# Behind NaN the recovered token of a point proposal depends on whether the batch has draft rows.
_broken = _declare("vllm forward", "float32", _CPP_COST, ("seed",), (_EVERYWHERE[0], *_BEHIND_TEMPERATURE))
forward = _Whole(_broken, "cpp", _forward_without_luck)
_interpreted = _declare(
    "vllm triton (interpreted)",
    "float64",
    _TRITON_COST | vllm_publish.TRITON_COST,
    _BOTH,
    (*_EVERYWHERE, *_FILTERS, *vllm_publish.DEVIATIONS),
)
triton = _Interpreted(_interpreted, "triton", _forward)

DECLARATION = _own.DECLARATION
verify_greedy = _own.verify_greedy
verify_sampled = _own.verify_sampled
verify_random = _own.verify_random


def publish(cases: Sequence[PublishCase]) -> list[CommittedState]:
    """`adapters/vllm_publish.py`, with the C++ kernels."""
    return vllm_publish.publish("cpp", cases)
