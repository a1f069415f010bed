"""SGLang's draft trees, and its Triton kernels, executed by Triton's interpreter (`TRITON_INTERPRET=1`). Slow.

Drafting and the layout of trees stand in `adapters/sglang_tree.py`, publication in `adapters/sglang_publish.py`, the
numeric step of its drafters, `adapters.sglang:drafter`, in `adapters/sglang_drafter.py`. The code under test here,
called as the EAGLE worker calls it (`eagle_sample` in `srt/speculative/eagle_utils.py`):
- `verify_tree_greedy_triton` of `kernels/ops/speculative/spec_tree.py` for `verify_greedy`, on chains and trees;
- `chain_speculative_sampling_triton` of `kernels/ops/speculative/reject_sampling.py` for `verify_sampled` and
  `verify_random`, on chains.

Two variants, each with its own `DECLARATION`:
- `adapters.sglang`: token by token, the default, and the one with trees;
- `adapters.sglang:block`: the sampling kernel with `block_verification=True`, where a coin decides on the whole
  prefix up to its node. Greedy verification knows no such option.

What is converted, and nothing else:
- a list of cases to batches: requests of one batch have one number of drafts there, so there is one launch for
  each number of drafts (and vocabulary size, where rows are read); the order of the list is kept;
- laws to float32: the kernel takes what the worker's softmax leaves. A point proposal's draft law is one-hot,
  and all zero where the drafted id lies outside the vocabulary. The worker's argmax is `torch.argmax`;
- a chain or tree to the worker's tables: slot 0 is the root (its token is never compared), node i is slot i + 1,
  with the first child and the next sibling of each slot, −1 for none, siblings in node order;
- coins to float32, as they are. Those that round to one are not applicable: no coin of the worker is as large;
- `accept_index` to the nodes of `Decision.path`; the frontier is the prediction behind the last of them. The
  predictions on the way are compared with the drafts, and a result that contradicts itself is an error
  (`InconsistentResult`), not a decision;
- a seed to coins from one torch generator a call, drawn as the worker draws them without per-request seeds.

In front of the rows lies a NaN, so that the id −1, which the kernel reads as the entry before a row, gives the
same result every time where there is no row before.

Not applicable: sampled trees (that kernel is CUDA code), and cases whose arrays do not fill K+1 rows of V.

At the first call the adapter sets TRITON_INTERPRET=1. How the interpreter is kept quick stands in
`adapters/triton_interpreter.py`.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from adapters import sglang_publish, sglang_tree, triton_interpreter
from adapters.interface import AdapterError, Arithmetic, Declaration, Deviation, NotApplicable
from adapters.sglang_drafter import drafter as drafter
from adapters.sglang_engine import MISSING
from adapters.sglang_publish import publish as publish
from adapters.sglang_tree import draft_tree as draft_tree
from adapters.sglang_tree import flatten_tree as flatten_tree
from adapters.sglang_tree import grow_tree as grow_tree
from adapters.sglang_tree import select_nodes as select_nodes
from adapters.sglang_tree import tree_mask as tree_mask
from adapters.sglang_tree import tree_visibility as tree_visibility
from oracle.types import Coins, Decision, VerifyCase


def _version() -> str:
    try:
        return importlib.metadata.version("sglang")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


class InconsistentResult(RuntimeError):
    """What the kernel predicts and what it accepts contradict each other."""


@dataclass(frozen=True)
class _Code:
    torch: Any
    sample: Callable[..., None]
    greedy: Callable[..., None]


def _implementation() -> _Code:
    triton_interpreter.interpret("sglang")
    try:
        import torch
        from sglang.kernels.ops.speculative.reject_sampling import chain_speculative_sampling_triton
        from sglang.kernels.ops.speculative.spec_tree import verify_tree_greedy_triton
    except ImportError as error:
        raise AdapterError(MISSING.format(error)) from error
    return _Code(torch, chain_speculative_sampling_triton, verify_tree_greedy_triton)


def verify_greedy(cases: Sequence[VerifyCase]) -> list[Decision]:
    """Decide chains and trees by the argmax of their rows, one launch for each number of drafts."""
    code = _implementation()
    return _in_launches(cases, _nodes, lambda members: _greedy(code, [cases[i] for i in members]))


def _verify_sampled(block: bool, cases: Sequence[VerifyCase], coins: Sequence[Coins]) -> list[Decision]:
    code = _implementation()
    if len(cases) != len(coins):
        raise AdapterError(f"{len(cases)} cases have {len(coins)} coins")

    def launch(members: list[int]) -> list[Decision]:
        accept = np.array([np.asarray(coins[i].accept) for i in members]).astype(np.float32)
        frontier = np.array([coins[i].frontier for i in members]).astype(np.float32)
        if max(accept.max(initial=0), frontier.max()) == 1:
            raise NotApplicable("a coin is a float32 below one; one of these rounds to one")
        tossed = (code.torch.from_numpy(accept), code.torch.from_numpy(frontier))
        return _sampled(code, block, [cases[i] for i in members], *tossed)

    return _in_launches(cases, _chain, launch)


def _verify_random(block: bool, cases: Sequence[VerifyCase], seed: int) -> list[Decision]:
    code = _implementation()
    generator = code.torch.Generator().manual_seed(seed)

    def launch(members: list[int]) -> list[Decision]:
        slots = len(cases[members[0]].token) + 1
        accept = code.torch.rand((len(members), slots), generator=generator, dtype=code.torch.float32)
        frontier = code.torch.rand((len(members),), generator=generator, dtype=code.torch.float32)
        return _sampled(code, block, [cases[i] for i in members], accept, frontier)

    return _in_launches(cases, _chain, launch)


def _in_launches(
    cases: Sequence[VerifyCase],
    kind: Callable[[VerifyCase], tuple[int, ...]],
    launch: Callable[[list[int]], list[Decision]],
) -> list[Decision]:
    """One launch for the members of each kind; their decisions in the order of `cases`."""
    launches: dict[tuple[int, ...], list[int]] = {}
    for i, case in enumerate(cases):
        launches.setdefault(kind(case), []).append(i)
    decisions: dict[int, Decision] = {}
    for members in launches.values():
        decisions |= zip(members, launch(members), strict=True)
    return [decisions[i] for i in range(len(cases))]


def _nodes(case: VerifyCase) -> tuple[int, ...]:
    """The number of drafts; `NotApplicable` where the tables cannot hold the case."""
    token, parent, shape = np.asarray(case.token), np.asarray(case.parent), np.shape(case.target_probs)
    if token.ndim != 1 or (token.size and token.dtype.kind not in "iu"):
        raise NotApplicable("drafts are a tensor of integer ids")
    if parent.shape != token.shape or any(not -1 <= above < i for i, above in enumerate(parent.tolist())):
        raise NotApplicable("a slot hangs below an earlier one")
    if len(shape) != 2 or shape[0] != len(token) + 1:
        raise NotApplicable(f"a request with {len(token)} drafts has a row for each slot, not {shape}")
    return (len(token),)


def _chain(case: VerifyCase) -> tuple[int, ...]:
    """The number of drafts and the size of the vocabulary; `NotApplicable` where it is no chain with draft rows."""
    (count,) = _nodes(case)
    if np.asarray(case.parent).tolist() != list(range(-1, count - 1)):
        raise NotApplicable("the kernel that samples along a tree is CUDA code")
    if case.proposal not in ("point", "iid", "without_replacement"):
        raise NotApplicable("the kernel takes draft rows; it has no notion of another proposal")
    shape = np.shape(case.target_probs)
    if case.proposal != "point" and np.shape(() if case.draft_probs is None else case.draft_probs) != shape:
        raise NotApplicable(f"a sampled proposal has draft rows of shape {shape}")
    return count, shape[1]


def _sampled(code: _Code, block: bool, cases: Sequence[VerifyCase], accept: Any, frontier: Any) -> list[Decision]:
    count, vocabulary = _chain(cases[0])
    target = _behind_nan(code, (len(cases), count + 1, vocabulary))
    draft = _behind_nan(code, (len(cases), count, vocabulary))
    for i, case in enumerate(cases):
        target[i] = code.torch.from_numpy(np.asarray(case.target_probs).astype(np.float32))
        if case.proposal == "point":
            rows = np.arange(vocabulary) == np.asarray(case.token)[:, None]
        else:
            rows = np.asarray(case.draft_probs)[:count]
        draft[i] = code.torch.from_numpy(rows.astype(np.float32))
    tables = _Tables(code, cases, count + 1)
    with triton_interpreter.launch():
        code.sample(
            *tables.results,
            tables.candidates,
            tables.slots,
            tables.child,
            tables.sibling,
            accept,
            frontier,
            target,
            draft,
            1.0,
            1.0,
            True,
            block_verification=block,
        )
    return tables.decisions(cases)


def _greedy(code: _Code, cases: Sequence[VerifyCase]) -> list[Decision]:
    rows = [code.torch.from_numpy(np.asarray(case.target_probs).astype(np.float32)) for case in cases]
    best = code.torch.stack([code.torch.argmax(row, dim=-1) for row in rows])
    tables = _Tables(code, cases, max(_depth(case) for case in cases) + 1)
    with triton_interpreter.launch():
        code.greedy(*tables.results, tables.candidates, tables.slots, tables.child, tables.sibling, best)
    return tables.decisions(cases)


def _depth(case: VerifyCase) -> int:
    depth = [0]
    for above in case.parent.tolist():
        depth.append(depth[above + 1] + 1)
    return max(depth)


def _behind_nan(code: _Code, shape: tuple[int, ...]) -> Any:
    """An uninitialised tensor with NaN in front of it."""
    memory = code.torch.full((1 + int(np.prod(shape)),), float("nan"), dtype=code.torch.float32)
    return memory[1:].view(shape)


class _Tables:
    """The worker's tables for requests with equally many drafts, and the tensors that the kernels fill in."""

    def __init__(self, code: _Code, cases: Sequence[VerifyCase], depth: int) -> None:
        batch, slots = len(cases), len(cases[0].token) + 1
        candidates = np.zeros((batch, slots), dtype=np.int64)
        child, sibling = np.full((2, batch, slots), -1, dtype=np.int64)
        for i, case in enumerate(cases):
            candidates[i, 1:] = case.token
            last: dict[int, int] = {}
            for slot, above in enumerate((np.asarray(case.parent) + 1).tolist(), start=1):
                if above in last:
                    sibling[i, last[above]] = slot
                else:
                    child[i, above] = slot
                last[above] = slot
        torch = code.torch
        self.candidates, self.child, self.sibling = map(torch.from_numpy, (candidates, child, sibling))
        self.slots = torch.arange(batch * slots, dtype=torch.int64).view(batch, slots)
        self.results = (
            torch.zeros(batch * slots, dtype=torch.int32),
            torch.full((batch, depth), -1, dtype=torch.int32),
            torch.zeros(batch, dtype=torch.int32),
        )

    def decisions(self, cases: Sequence[VerifyCase]) -> list[Decision]:
        predicted, accepted, counts = (result.tolist() for result in self.results)
        found = []
        for case, first, row, count in zip(cases, self.slots[:, 0].tolist(), accepted, counts, strict=True):
            walk = row[: count + 1]
            path = tuple(slot - first - 1 for slot in walk[1:])
            published = [predicted[slot] for slot in walk]
            if walk[0] != first or published[:-1] != [int(case.token[node]) for node in path]:
                raise InconsistentResult(f"accept_index is {row}, {count} of them drafts, and predicts {published}")
            found.append(Decision(path, published[-1]))
        return found


def _declare(name: str, scheme: str, deviations: tuple[Deviation, ...], trees: bool) -> Declaration:
    conventions = {"coin_scheme": scheme, "frontier_coin": "inverse_cdf", "accept_operator": "<"}
    cost = {"verify_greedy": 5e-3, "verify_sampled": 7e-3, "verify_random": 6e-3}
    return Declaration(
        name=name,
        version=_version(),
        links=(
            "https://github.com/sgl-project/sglang/blob/main/python/sglang/kernels/ops/speculative/reject_sampling.py",
            "https://github.com/sgl-project/sglang/blob/main/python/sglang/kernels/ops/speculative/spec_tree.py",
        ),
        conventions=conventions | (sglang_tree.CONVENTIONS if trees else {}),
        arithmetic=Arithmetic(dtype="float32", coin_dtype="float32"),
        cost=cost | (sglang_tree.COST | sglang_publish.COST if trees else {}),
        promises=("seed",),
        deviations=deviations,
    )


class _Variant:
    """A namespace with the sampling operations; `--impl=adapters.sglang:<name>`."""

    def __init__(self, declaration: Declaration, block: bool) -> None:
        self.DECLARATION = declaration
        self._block = block

    def verify_sampled(self, cases: Sequence[VerifyCase], coins: Sequence[Coins]) -> list[Decision]:
        return _verify_sampled(self._block, cases, coins)

    def verify_random(self, cases: Sequence[VerifyCase], seed: int) -> list[Decision]:
        return _verify_random(self._block, cases, seed)


_NAN = Deviation(
    "ACCEPTANCE-108",
    "NaN rows are decided like others: a comparison with NaN rejects, a residual of NaN leaves the last token id, "
    "and argmax of NaN is a token",
    witness="nan_at_the_root",
    fixtures=("4164c5401c40", "54112da8b1ca", "d2b2c6286fc6", "958f0575baab", "346cd0671afa"),
)
_NAN_WEIGHT = Deviation(
    "ACCEPTANCE-108",
    "the minimum of NaN and one is one, so a NaN row makes the weight of the prefix one and its drafts are accepted",
    witness="nan_at_the_root",
)
_PADDING = Deviation(
    "ACCEPTANCE-109",
    "the kernel has no test for −1: it reads the entry before the row, in both laws, and may accept it",
    witness="padded_draft",
)
_BY_TOKEN = (
    Deviation(
        "ACCEPTANCE-304",
        "an empty residual has no first token above the coin, and the last token id stands in for it, massless or not",
        witness="no_residual_left_across_a_step_of_float32",
    ),
    Deviation(
        "ACCEPTANCE-606",
        "the same empty residual, met coin by coin",
        witness="no_residual_left_across_a_step_of_float32",
    ),
    Deviation(
        "ACCEPTANCE-603",
        "a draft with q = 0 is rejected (lossless for drafts that come from q)",
        witness="draft_of_no_draft_mass",
        fixtures=("b9dd20c46588", "bf287fea59bb"),
    ),
)

block = _Variant(_declare("sglang block (interpreted)", "block", (_NAN_WEIGHT, _PADDING), False), True)
_PADDED = dataclasses.replace(_PADDING, fixtures=("fbd9d521e2a6", "dca169edab9d", "64a3540ebb6c"))
_DEVIATIONS = (_NAN, _PADDED, *_BY_TOKEN, *sglang_tree.DEVIATIONS, *sglang_publish.DEVIATIONS)
_tokenwise = _Variant(_declare("sglang (interpreted)", "per_node", _DEVIATIONS, True), False)

DECLARATION = _tokenwise.DECLARATION
verify_sampled = _tokenwise.verify_sampled
verify_random = _tokenwise.verify_random
