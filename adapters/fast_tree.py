"""Trees by `oracle.fast.tree`, as `adapters.fast` hands them out: the cases of a call make one ragged batch.

A drafter that is a table is read row by row, and a row it has not got is `BadInput`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from adapters.interface import NotApplicable
from oracle.errors import BadInput
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

if TYPE_CHECKING:
    from torch import Tensor

COST: Mapping[str, float] = {
    **{"grow_tree": 6e-4, "select_nodes": 2e-4, "flatten_tree": 4e-4, "tree_visibility": 1e-4},
    **{"tree_mask": 3e-4, "draft_tree": 1e-3},
}


class Tree:
    """The operations with confidences and values of a dtype, by NumPy or by the way that the host stays out of."""

    dtype = "float64"
    vectorised = False

    @classmethod
    def grow_tree(cls, case: GrowthCase) -> CandidateTree:
        """The candidates, in creation order."""
        import torch

        grown = _fast().grow_tree(
            _Rows([case], getattr(torch, cls.dtype)),
            *(case.expand_width, case.branch_width, case.max_depth),
            draft_to_target=_targets(case),
            device=torch.get_default_device(),
            validate=True,
        )
        return CandidateTree(
            *(
                grown.parent[0].cpu().numpy(),
                grown.token[0].cpu().numpy(),
                grown.confidence[0].to(grown.log_value.dtype).cpu().numpy(),
            ),
            *(grown.log_value[0].cpu().numpy(), grown.depth[0].cpu().numpy()),
        )

    @classmethod
    def select_nodes(cls, case: SelectionCase) -> Ids:
        """Node ids in selection order."""
        found: Ids = (
            _fast()
            .select_nodes(cls._batch([case.tree]), case.budget, validate=True, vectorised=cls.vectorised)[0]
            .cpu()
            .numpy()
        )
        return found

    @classmethod
    def flatten_tree(cls, cases: Sequence[FlattenCase]) -> list[FlatTree]:
        """One batch of all the cases."""
        import torch

        selected, length = _padded([case.selected for case in cases])
        base = torch.tensor([case.base for case in cases])
        made = _fast().flatten_tree(
            *(cls._batch([case.tree for case in cases]), selected, base),
            length=length,
            validate=True,
            vectorised=cls.vectorised,
        )
        return _members(made)

    @classmethod
    def draft_tree(cls, cases: Sequence[DraftTreeCase]) -> list[FlatTree]:
        """One batch of the cases of one shape of growth and one draft vocabulary."""
        import torch

        groups: dict[object, list[int]] = {}
        for i, case in enumerate(cases):
            groups.setdefault(_shape(case.growth), []).append(i)
        found: dict[int, FlatTree] = {}
        for places in groups.values():
            own = [cases[i] for i in places]
            budget, base = (torch.tensor([getattr(case, name) for case in own]) for name in ("budget", "base"))
            first = own[0].growth
            made = _fast().draft_tree(
                _Rows([case.growth for case in own], getattr(torch, cls.dtype)),
                *(first.expand_width, first.branch_width, first.max_depth, budget, base, len(own)),
                draft_to_target=_targets(first),
                device=torch.get_default_device(),
                validate=True,
                vectorised=cls.vectorised,
            )
            found.update(zip(places, _members(made)))
        return [found[i] for i in range(len(cases))]

    @classmethod
    def tree_visibility(cls, parent: Ids) -> Flags:
        """Of one vector."""
        found: Flags = (
            _fast().tree_visibility(_ids(parent)[None], validate=True, vectorised=cls.vectorised)[0].cpu().numpy()
        )
        return found

    @classmethod
    def tree_mask(cls, cases: Sequence[MaskCase]) -> list[np.ndarray]:
        """One batch of the cases of each form; what stands behind a tree's own rows and columns is cut off."""
        import torch

        from oracle.fast import masks

        found: dict[int, np.ndarray] = {}
        for form in dict.fromkeys(case.form for case in cases):
            places = [i for i, case in enumerate(cases) if case.form == form]
            parent, length = _padded([cases[i].parent for i in places])
            longest = max(int(cases[i].prefix) for i in places) if cls.vectorised else None
            made = masks.tree_mask(
                *(parent, torch.tensor([cases[i].prefix for i in places]), form),
                length=length,
                longest=longest,
                dtype=torch.float64,
                validate=True,
                vectorised=cls.vectorised,
            )
            for i, mask in zip(places, made.cpu().numpy()):
                rows = len(cases[i].parent) + 1
                columns = cases[i].prefix + rows
                if form.startswith("packed"):
                    columns = -(-columns // int(form.removeprefix("packed")))
                found[i] = mask[:rows, :columns]
        return [found[i] for i in range(len(cases))]

    @classmethod
    def _batch(cls, trees: Sequence[CandidateTree]) -> Any:
        import torch

        names = ("parent", "token", "confidence", "log_value", "depth")
        return _together([[getattr(tree, name) for name in names] for tree in trees], getattr(torch, cls.dtype))


class _Rows:
    """Tables of either form, one a tree, as a drafter."""

    def __init__(self, cases: Sequence[GrowthCase], dtype: Any) -> None:
        self._tables: list[Any] = [case.table for case in cases]
        self._dtype = dtype
        for case in cases:
            if not isinstance(case.table, Mapping) and len(case.table) < case.max_depth:
                rule = f"has a layer for each of the {case.max_depth} depths"
                raise BadInput("case.table", (), rule, len(case.table))

    def __call__(self, frontier: Any) -> Tensor:
        import torch

        trees = zip(self._tables, frontier.prefix.tolist())
        rows = [[_row(table, tuple(prefix)) for prefix in prefixes] for table, prefixes in trees]
        given = torch.tensor(np.array(rows, dtype=np.float64))
        laws = given.to(self._dtype)
        if bool(((given > 0) & (laws == 0)).any()):
            raise NotApplicable(f"{self._dtype} has no number as small as one of these")
        return laws


def _row(table: Any, prefix: tuple[int, ...]) -> np.ndarray:
    try:
        found = table[prefix] if isinstance(table, Mapping) else np.asarray(table[len(prefix)])[prefix]
    except (KeyError, IndexError):
        raise BadInput("case.table", prefix, "has a row for each prefix that is drafted from") from None
    return np.asarray(found, dtype=np.float64)


def _shape(case: GrowthCase) -> object:
    """What the growths of one batch have in common: widths, and the vocabularies."""
    table: Any = case.table
    root = None if case.max_depth < 1 or not len(table) else np.shape(_row(table, ()))
    given = case.draft_map
    ids = (
        None if given is None else (np.asarray(given.d2t).tobytes(), given.convention, np.asarray(given.t2d).tobytes())
    )
    return case.expand_width, case.branch_width, case.max_depth, root, ids


def _targets(case: GrowthCase) -> Tensor | None:
    import torch

    from oracle.fast.losses import draft_to_target

    if case.draft_map is None:
        return None
    t2d = None if case.draft_map.t2d is None else torch.tensor(np.array(case.draft_map.t2d))
    return draft_to_target(torch.tensor(np.array(case.draft_map.d2t)), t2d, case.draft_map.convention)


def _together(parts: Sequence[Sequence[np.ndarray]], dtype: Any) -> Any:
    """Vectors of several trees as one batch."""
    import torch

    nodes = [len(tree[0]) for tree in parts]
    for tree, count in zip(parts, nodes):
        if any(np.shape(vector) != (count,) for vector in tree):
            raise BadInput("tree", (), f"a vector has one entry for each of {count} nodes", [len(v) for v in tree])
    columns = [_padded(vectors)[0] for vectors in zip(*parts)]
    columns[2:4] = [one.to(dtype) if one.is_floating_point() or not one.numel() else one for one in columns[2:4]]
    length = None if len(set(nodes)) == 1 else torch.tensor(nodes)
    return _fast().Candidates(*columns, length=length)


def _padded(vectors: Sequence[Any]) -> tuple[Tensor, Tensor]:
    """Rows [B, most], and the length of each."""
    import torch

    arrays = [whole_numbers(vector) for vector in vectors]
    most = max(map(len, arrays))
    rows = np.array([np.pad(array, (0, most - len(array))) for array in arrays])
    return torch.tensor(rows), torch.tensor([len(array) for array in arrays])


def _ids(values: object) -> Tensor:
    import torch

    return torch.tensor(whole_numbers(values))


def whole_numbers(values: object) -> np.ndarray:
    """Integers of any width as int64, which is how they are stored; what is none stays what it is."""
    array = np.asarray(values)
    return array.astype(np.int64) if array.dtype.kind in "iu" or not array.size else np.array(array)


def _members(made: Any) -> list[FlatTree]:
    """Each tree without what stands behind it."""
    found = []
    for b, (rows, leaves) in enumerate(zip(made.length.tolist(), made.leaves.tolist())):
        node, parent, token, depth, first, following = (
            one[b, :rows].cpu().numpy()
            for one in (made.node, made.parent, made.token, made.depth, made.first_child, made.next_sibling)
        )
        visible, position = made.visible[b, :rows, :rows].cpu().numpy(), made.position[b, : rows + 1].cpu().numpy()
        paths = made.paths[b, :leaves, : depth.max(initial=0)].cpu().numpy()
        found.append(FlatTree(node, parent, token, depth, visible, paths, first, following, position))
    return found


def _fast() -> Any:
    from oracle.fast import tree

    return tree
