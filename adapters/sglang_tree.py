"""SGLang's draft trees: the EAGLE worker's own loop in torch, and the Triton kernel that lays a tree out, interpreted.

The code under test (`adapters/sglang_engine.py` says how it comes to run):
- `EagleDraftWorker.draft_forward` for `draft_tree` and `grow_tree`: the loop over `select_top_k_tokens`, the map of
  draft ids, then `organize_draft_results`;
- `organize_draft_results` for `select_nodes`;
- `organize_draft_results`, then `build_tree_kernel_efficient` around `sgl_build_tree_kernel_triton` for
  `flatten_tree`; the latter alone for `tree_visibility` (mode QLEN_ONLY) and `tree_mask` (mode FULL_MASK).

What is converted, and nothing else:
- a list of cases to batches: one worker has one topk, num_steps, num_draft_tokens and map, so there is one batch for
  each; layouts go into one batch where they verify equally many nodes. The order of the list is kept;
- `expand_width` = `branch_width` is topk, `max_depth` is num_steps; num_draft_tokens counts the root, budgets do not;
- a table's rows to float32, log values to float32 scores (exp): the worker's scores are products of probabilities;
- any tree to the worker's pool, layer by layer: entry 0 of parent_list is the root, each family gets an entry with its
  parent's pool index, and a node's own index is entry · topk + rank. Nodes to lay out have the score that selects;
- pool indices to node ids: the same numbers, since both count layer by layer, parents in the order of the frontier;
- slots to rows: slot 0 is the root, row i is slot i + 1. `parent` is read off the mask: the last row above that is
  visible. `depth` is the position less that of the root;
- of a growth, `log_value` is the logarithm of the score, and `confidence` what the worker multiplies by.

Not applicable: two different widths, widths above the vocabulary, no step at all, budgets above the pool (all of these
are fixed before the server runs, and it has no smaller tree for one request); with topk 1 another budget than num_steps
(the server overrides it) and `grow_tree` (no confidences are kept); ids to lay out that no node has; negative lengths
of the sequence; masks that are blocked or additive, and packed ones (CUDA code). A row that the table lacks is an error
of the draft model.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np

from adapters.interface import Deviation, NotApplicable
from adapters.sglang_engine import DraftModel, engine, hot_token_id
from oracle.types import (
    CandidateTree,
    DraftTreeCase,
    Flags,
    FlattenCase,
    FlatTree,
    GrowthCase,
    Ids,
    MaskCase,
    SelectionCase,
)

Case = TypeVar("Case")
Answer = TypeVar("Answer")
BONUS = 0
"""Token of the root; no answer holds it."""
NOT_IN_THE_POOL = 2**40
CONVENTIONS = {"root_in_verification": "yes", "selection_order": "node", "draft_map": "offset"}
COST = {
    "grow_tree": 1e-3,
    "select_nodes": 2e-4,
    "flatten_tree": 1.5e-2,
    "draft_tree": 1.5e-2,
    "tree_visibility": 2e-2,
    "tree_mask": 3e-2,
}

_CODE = "https://github.com/sgl-project/sglang/blob/v0.5.23/python/sglang"
_PRODUCT = f"{_CODE}/srt/speculative/spec_utils.py#L448-L453"
_BEST = f"{_CODE}/srt/speculative/eagle_utils.py#L110"
_DRAFT = f"{_CODE}/srt/speculative/eagle_worker_v2.py#L882-L887"
_POOL = f"{_CODE}/srt/speculative/eagle_utils.py#L95-L133"
_LAYOUT = f"{_CODE}/kernels/ops/speculative/spec_tree.py#L92-L140"
_UNREAD = "what comes from the worker's own loop is not checked: scores, tokens and indices are taken as they are"
DEVIATIONS = (
    Deviation("TREE-209", "a score is the product of the probabilities themselves, which has no floor", link=_PRODUCT),
    Deviation("TREE-211", "torch.topk leaves open which of several equal nodes it expands", link=_PRODUCT),
    Deviation("TREE-213", "torch.topk leaves open which of several equal tokens it takes", link=_DRAFT),
    Deviation("TREE-305", "torch.topk leaves open which of several equal scores it takes", link=_BEST),
    Deviation(
        "TREE-306", "a child of probability 1 has its parent's score, and torch.topk may take it alone", link=_BEST
    ),
    Deviation("TREE-307", "a product below the smallest float32 is 0, and torch.topk takes any of these", link=_BEST),
    Deviation(
        "TREE-705",
        "a child with its parent's score may be taken alone: its row sees only the root, and no link leads to it",
        link=_BEST,
    ),
    Deviation(
        "TREE-708",
        "a product below the smallest float32 is 0, and so is that of each sibling: any is kept",
        link=_PRODUCT,
    ),
    Deviation(
        "TREE-801",
        "NaN is the greatest for torch.topk; probes for it are off by default, and look for nothing else",
        link="https://github.com/sgl-project/sglang/issues/7477",
    ),
    Deviation("TREE-802", "rows come out of the worker's softmax, and no sum is looked at again", link=_DRAFT),
    *(Deviation(f"TREE-{clause}", _UNREAD, link=_POOL) for clause in (805, 806, 808, 810)),
    Deviation("TREE-807", "the kernel follows parents for num_steps steps, wherever they lead", link=_LAYOUT),
    Deviation("TREE-809", "a node without its parent is left out of the links, and sees no ancestor", link=_LAYOUT),
)


def grow_tree(case: GrowthCase) -> CandidateTree:
    """The worker's pool."""
    if case.expand_width == 1:
        raise NotApplicable("with topk 1 the worker takes each argmax and keeps no confidences")
    _configuration(case, 0)
    e = engine()
    _draft([case], 0)
    parent, token, confidence, score, depth = [], [], [], [], []
    above: list[int] = []
    for step, (probabilities, (scores, tokens, parents)) in enumerate(e.steps):
        width = tokens.shape[1]
        parent += [-1] * width if step == 0 else [node for node in above for _ in range(width // len(above))]
        token += tokens[0].tolist()
        confidence += probabilities.reshape(-1).tolist()
        score += scores.reshape(-1).tolist()
        depth += [step + 1] * width
        above = parents[0].tolist()[1:] if step == 0 else parents[0].tolist()
    with np.errstate(divide="ignore", invalid="ignore"):
        log_value = np.log(np.array(score, dtype=np.float64))
    return CandidateTree(_ids(parent), _ids(token), np.array(confidence, dtype=np.float64), log_value, _ids(depth))


def select_nodes(case: SelectionCase) -> Ids:
    """The nodes that the worker's topk selects, sorted by id."""
    e = engine()
    nodes = len(case.tree.log_value)
    if case.budget > nodes:
        raise NotApplicable(f"num_draft_tokens is fixed, and a pool of {nodes} holds less")
    scores = e.torch.exp(e.torch.from_numpy(np.array(case.tree.log_value)).to(e.torch.float32))
    ids = e.torch.arange(nodes)[None]
    found = e.utils.organize_draft_results([scores[None, :, None]], [ids], [ids], case.budget + 1)
    return _ids(found[2][0].tolist())


def flatten_tree(cases: Sequence[FlattenCase]) -> list[FlatTree]:
    """One launch for each number of selected nodes."""

    def launch(members: list[FlattenCase]) -> list[FlatTree]:
        pool = _Pool([np.asarray(case.tree.parent).tolist() for case in members], layered=True)
        token = np.full((len(members), pool.size), -1, dtype=np.int64)
        score = np.zeros((len(members), pool.size), dtype=np.float32)
        for i, case in enumerate(members):
            token[i, pool.index[i]] = case.tree.token
            score[i, [pool.index[i][node] for node in case.selected]] = 1
        torch = engine().torch
        parent_list, chosen, tokens = engine().utils.organize_draft_results(
            [torch.from_numpy(score)[:, :, None]],
            [torch.from_numpy(token)],
            [pool.parent_list, pool.parent_list],
            len(members[0].selected) + 1,
        )
        laid = _Layout(parent_list, chosen, tokens, [case.base for case in members], pool.topk, pool.steps)
        return [
            laid.flat(i, [pool.node[i].get(index, -1) for index in indices])
            for i, indices in enumerate(chosen.tolist())
        ]

    def kind(case: FlattenCase) -> Hashable:
        selected = np.asarray(case.selected).tolist()
        if any(not 0 <= node < len(case.tree.parent) for node in selected):
            raise NotApplicable("the pool has no node of that id")
        return len(selected)

    return _in_batches(cases, kind, launch)


def draft_tree(cases: Sequence[DraftTreeCase]) -> list[FlatTree]:
    """One worker for each configuration, one batch a worker."""

    def launch(members: list[DraftTreeCase]) -> list[FlatTree]:
        growth = members[0].growth
        parent_list, chosen, tokens = _draft([case.growth for case in members], members[0].budget)
        bases = [case.base for case in members]
        laid = _Layout(parent_list, chosen, tokens, bases, growth.expand_width, growth.max_depth)
        return [laid.flat(i, indices) for i, indices in enumerate(chosen.tolist())]

    return _in_batches(cases, lambda case: _configuration(case.growth, case.budget), launch)


def tree_visibility(parent: Ids) -> Flags:
    """The mask of mode QLEN_ONLY without the root."""
    above = np.asarray(parent).tolist()
    seen: Flags = _whole([above], [0], engine().modes.QLEN_ONLY).masks[0][1:, 1:]
    return seen


def tree_mask(cases: Sequence[MaskCase]) -> list[np.ndarray]:
    """The mask of mode FULL_MASK, one launch for each number of nodes."""

    def launch(members: list[MaskCase]) -> list[np.ndarray]:
        above = [np.asarray(case.parent).tolist() for case in members]
        return _whole(above, [case.prefix for case in members], engine().modes.FULL_MASK).masks

    def kind(case: MaskCase) -> Hashable:
        if case.form != "allowed":
            raise NotApplicable("the engine's mask is true where a row sees; the kernel that packs it is CUDA code")
        return len(case.parent)

    return _in_batches(cases, kind, launch)


def _in_batches(
    cases: Sequence[Case], kind: Callable[[Case], Hashable], launch: Callable[[list[Case]], list[Answer]]
) -> list[Answer]:
    """One launch for the members of each kind; their answers in the order of `cases`."""
    batches: dict[Hashable, list[int]] = {}
    for i, case in enumerate(cases):
        batches.setdefault(kind(case), []).append(i)
    answers: dict[int, Answer] = {}
    for members in batches.values():
        answers |= zip(members, launch([cases[i] for i in members]), strict=True)
    return [answers[i] for i in range(len(cases))]


def _configuration(case: GrowthCase, budget: int) -> Hashable:
    """What one worker is configured with; `NotApplicable` where none can be."""
    topk, steps = case.expand_width, case.max_depth
    if case.branch_width != topk:
        raise NotApplicable("one topk is how many nodes are expanded and how many children each gets")
    if steps == 0:
        raise NotApplicable("num_steps is at least one")
    vocabulary = np.shape(case.table[()] if isinstance(case.table, Mapping) else case.table[0])[-1]
    if topk > vocabulary:
        raise NotApplicable(f"topk is fixed, and a vocabulary of {vocabulary} holds less")
    if topk == 1 and budget != steps:
        raise NotApplicable("with topk 1 the server overrides num_draft_tokens: it is num_steps + 1")
    if budget > topk + (steps - 1) * topk * topk > 0:
        raise NotApplicable(f"num_draft_tokens is fixed, and the pool of topk {topk} and {steps} steps holds less")
    given = case.draft_map
    return (
        (topk, steps, budget, vocabulary),
        given and (given.convention, np.asarray(given.d2t).tobytes()),
    )


def _draft(cases: Sequence[GrowthCase], budget: int) -> Any:
    """What the worker drafts: parent_list, top_scores_index and the draft tokens, one row a case."""
    e = engine()
    topk, steps = cases[0].expand_width, cases[0].max_depth
    model = DraftModel([case.table for case in cases], steps)
    worker = SimpleNamespace(
        topk=topk,
        speculative_num_steps=steps,
        speculative_num_draft_tokens=budget + 1,
        hot_token_id=hot_token_id(cases[0].draft_map),
        device="cpu",
        server_args=None,
        draft_runner=model,
        draft_attn_backend=SimpleNamespace(attn_backends=[None] * steps),
        index_share_for_mtp_iteration=False,
        seed_dsa_topk_from_draft_extend=False,
    )
    e.base.EagleDraftWorkerBase._rebuild_topk1_chain_buffers(worker)
    probabilities, index = e.worker.fast_topk(model.rows(model.start), topk, dim=-1)
    batch = SimpleNamespace(
        forward_mode=SimpleNamespace(is_idle=lambda: False),
        spec_info=SimpleNamespace(topk_p=probabilities, topk_index=index, hidden_states=model.start),
        sampling_info=SimpleNamespace(is_all_greedy=True),
        batch_size=len(cases),
        out_cache_loc=e.torch.arange(len(cases) * topk * steps),
        positions=e.torch.zeros(len(cases) * topk, dtype=e.torch.int64),
    )
    e.steps.clear()
    return e.worker.EagleDraftWorker.draft_forward(worker, batch)[:3]


class _Pool:
    """Trees as the worker's pools: `index[i]` are those of tree i's nodes, `node[i]` the way back.

    layered: indices ascend by depth, then by node id, as they do in the worker; otherwise by node id alone.
    """

    def __init__(self, trees: Sequence[list[int]], layered: bool) -> None:
        depths = [_depths(above) for above in trees]
        self.topk = max((above.count(node) for above in trees for node in set(above)), default=1)
        self.steps = max((1, *(deep for depth in depths for deep in depth)))
        self.index, self.node, entries = [], [], []
        for above, depth in zip(trees, depths, strict=True):
            order = np.lexsort((np.arange(len(above)), np.array(depth))).tolist() if layered else range(len(above))
            held: list[int] = [-1]  # entry → the node that it holds
            index: dict[int, int] = {}
            roots = rank = 0
            for i in order:
                if above[i] == -1:
                    index[i], roots = roots, roots + 1
                    continue
                if held[-1] != above[i] or len(held) == 1:
                    held, rank = [*held, above[i]], 0
                index[i], rank = (len(held) - 1) * self.topk + rank, rank + 1
            entries.append([-1, *(index.get(parent, NOT_IN_THE_POOL) for parent in held[1:])])
            self.index.append([index[i] for i in range(len(above))])
            self.node.append({at: i for i, at in index.items()})
        longest = max(map(len, entries))
        self.size = longest * self.topk
        self.parent_list = engine().torch.tensor(
            [entry + [NOT_IN_THE_POOL] * (longest - len(entry)) for entry in entries]
        )


def _depths(above: Sequence[int]) -> list[int]:
    depth: list[int] = []
    for i, parent in enumerate(above):
        depth.append(depth[parent] + 1 if 0 <= parent < i else 1)
    return depth


def _whole(trees: Sequence[list[int]], bases: Sequence[int], mode: Any) -> _Layout:
    """The layout of whole trees, their nodes as rows in the order given."""
    pool, torch = _Pool(trees, layered=False), engine().torch
    index = torch.tensor(pool.index, dtype=torch.int64).reshape(len(trees), -1)
    return _Layout(pool.parent_list, index, torch.zeros_like(index), bases, pool.topk, pool.steps, mode)


class _Layout:
    """A batch laid out by `build_tree_kernel_efficient`; masks: bool, the root's row and column first."""

    def __init__(
        self, parent_list: Any, chosen: Any, tokens: Any, bases: Sequence[int], topk: int, steps: int, mode: Any = None
    ) -> None:
        e = engine()
        mode = e.modes.FULL_MASK if mode is None else mode
        if min(bases) < 0:
            raise NotApplicable("a sequence has no negative length; the kernel would write in front of its tensors")
        members, slots = len(bases), chosen.shape[1] + 1
        lengths = e.torch.tensor(bases, dtype=e.torch.int64)
        bonus = e.torch.full((members,), BONUS, dtype=tokens.dtype)
        flat, *tables = e.utils.build_tree_kernel_efficient(
            bonus, parent_list, chosen, tokens, lengths, sum(bases), topk, steps, slots, mode
        )
        self.masks: list[np.ndarray] = []
        start = 0
        for base in bases:
            columns = slots + (base if mode == e.modes.FULL_MASK else 0)
            self.masks.append(flat[start : start + slots * columns].view(slots, columns).numpy())
            start += slots * columns
        self.position, _, self.child, self.sibling, self.token = (t.view(members, slots).numpy() for t in tables)

    def flat(self, member: int, node: list[int]) -> FlatTree:
        """The rows of one member; `node` are their ids."""
        rows, position = len(node), self.position[member]
        visible = self.masks[member][1:, self.masks[member].shape[1] - rows :]
        above = np.tril(visible, -1)
        return FlatTree(
            node=_ids(node),
            parent=_ids([max(np.flatnonzero(row).tolist(), default=-1) for row in above]),
            token=self.token[member, 1:],
            depth=position[1:] - position[0],
            visible=visible,
            paths=None,
            first_child=_rows(self.child[member]),
            next_sibling=_rows(self.sibling[member]),
            position=position,
        )


def _rows(slots: Ids) -> Ids:
    """Slots as rows; the root's own entry goes."""
    return np.where(slots[1:] > 0, slots[1:] - 1, -1)


def _ids(values: Sequence[int]) -> Ids:
    return np.array(values, dtype=np.int64).reshape(-1)
