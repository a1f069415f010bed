"""Deciding on a CPU, one request after the other: a walk opens the rows that it visits and reads their entries.

A row of probabilities that is opened costs nothing; one of logits costs its exponentials and their sums, which stay in
the core's cache for whatever is read of them next. Only the row that the frontier is drawn from is read whole. Numbers
are validated where they are read: entries one by one, and whole rows where all of a row is read.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from oracle.errors import BadInput
from oracle.fast.drafted import Laws, Listed, twin
from oracle.fast.drawing import accumulated

BLOCK = 128
"""Tokens whose masses are summed first: a coin finds its block before its token."""
SEEN = 0.125
"""What is owed is one less what is gone, and summed anew where less than this is left: differences lose digits."""

Spend = Callable[[int], float]
"""Node → coin; the frontier's of node −1."""
Found = tuple[list[int], int]
"""A path and a frontier."""
NO_LAW = -1
_ONES = {kind: np.ones(BLOCK, kind) for kind in (np.dtype(np.float32), np.dtype(np.float64))}
_NOTHING = np.empty(0)
_ENTRY = "a probability lies in [0, 1]"


class Row(NamedTuple):
    """Masses [V] as torch and as NumPy see them: the one computes faster, the other reads entries faster."""

    tensor: Tensor
    array: np.ndarray


class _Scratch(threading.local):
    def __init__(self) -> None:
        self.rows: dict[tuple[str, torch.dtype], Row] = {}


_SCRATCH = _Scratch()


def scratch(name: str, size: int, dtype: torch.dtype) -> Row:
    """A row that this thread writes to again and again: fresh memory costs as much as a pass over it."""
    found = _SCRATCH.rows.get((name, dtype))
    if found is None or found.array.shape[0] != size:
        with torch.inference_mode(False):  # a tensor of inference mode could not be written to outside of it
            tensor = torch.empty(size, dtype=dtype, device="cpu")
        found = _SCRATCH.rows[name, dtype] = Row(tensor, tensor.numpy())
    return found


def edges_of(row: np.ndarray) -> np.ndarray:
    """What all tokens up to the end of each block weigh; sums within a block are of the row's dtype, others float64."""
    size = row.shape[0]
    cut = size - size % BLOCK
    sums = row[:cut].reshape(-1, BLOCK) @ _ONES[row.dtype]  # a product with ones is the fastest sum
    if cut < size:
        sums = np.append(sums, row[cut:].sum())
    found: np.ndarray = sums.astype(np.float64).cumsum()
    return found


def draw(row: np.ndarray, edges: np.ndarray, coin: float) -> int | None:
    """The first token v with coin · mass < Σ of the masses [V] up to v.

    The last token of positive mass where rounding leaves none; None of a row without mass, `NO_LAW` of one that is
    none.
    """
    total = edges.item(-1)
    if not 0 < total < math.inf:
        return None if total == 0 else NO_LAW
    limit = coin * total
    block = min(int(edges.searchsorted(limit, "right")), len(edges) - 1)
    start = block * BLOCK
    within = row[start : start + BLOCK].astype(np.float64).cumsum()
    v = start + int(within.searchsorted(limit - edges.item(block - 1) if block else limit, "right"))
    if v < start + len(within) and row.item(v) > 0:
        return v
    positive = row[: start + len(within)].nonzero()[0]  # sums were rounded: the last one so far, or else of all
    return int(positive[-1] if len(positive) else row.nonzero()[0][-1])


class Opened:
    """Rows of probabilities, or of any scores, that are opened one by one: the masses of the last one, and their sum.

    validate: whether what is read of a row of probabilities is looked at: `BadInput` where it is no law's.
    """

    def __init__(self, laws: Laws, validate: bool) -> None:
        self.laws, self.validate, self.total = laws, validate, 1.0
        rows, dtype = laws.rows, laws.sample.dtype
        self.work = accumulated(dtype)
        self._tolerance = 1e-9 if dtype == torch.float64 else max(1e-9, torch.finfo(dtype).eps * laws.vocabulary)
        self._most = math.inf if laws.logits else 1 + self._tolerance
        self._tensors = rows.detach() if isinstance(rows, Tensor) else [one.detach() for one in rows]
        self._arrays: Sequence[np.ndarray] | np.ndarray | None = None  # rows in NumPy cost less to point at
        if dtype == self.work:
            tensors = self._tensors
            self._arrays = tensors.numpy() if isinstance(tensors, Tensor) else [one.numpy() for one in tensors]
        self._place = (0, 0)
        self._row: Row | None = None
        self._edges: np.ndarray | None = None

    def open(self, member: int, row: int) -> Callable[[int], float]:
        """Go to a row of a request: token → its mass, to be divided by `total`, as long as the row is open."""
        self._place, self._row, self._edges = (member, row), None, None
        if self._arrays is None:
            tensor = self._tensors[member]
            return lambda token: float(tensor[row, token])
        found: Callable[[int], float] = self._arrays[member][row].item
        return found

    def check(self, token: int, mass: float) -> None:
        """With `validate`, of an entry that was read: `BadInput` where it is no probability."""
        if self.validate and not 0 <= mass <= self._most:
            raise BadInput(self.laws.field, (*self._place, token), _ENTRY, str(mass))

    def row(self) -> Row:
        """All masses, not to be written to."""
        if self._row is None:
            array = self._array()
            self._row = Row(torch.from_numpy(array), array)
            if self.validate:
                self._check(self._row)
        return self._row

    def without(self, tokens: Iterable[int]) -> np.ndarray:
        """All masses but those of some tokens, until a row is opened or this is asked again."""
        left = scratch(f"{self.laws.field} without", self.laws.vocabulary, self.work).array
        np.copyto(left, self.row().array)
        return _emptied(left, tokens)

    def draw(self, coin: float, gone: Collection[int] = ()) -> int | None:
        """A token of the row without some by a coin: see `draw`."""
        array = self.without(gone) if gone else self.row().array
        return draw(array, edges_of(array) if gone else self._sums(array), coin)

    def best(self, member: int, row: int) -> int:
        """The lowest token of a row's largest value; `NO_LAW`, or with `validate` `BadInput`, where there is NaN."""
        self._place = member, row
        array = self._array()
        token = int(array.argmax())
        if not math.isnan(array.item(token)):
            return token
        if self.validate:
            raise BadInput(self.laws.field, (*self._place, token), "a row that is read holds no NaN", "nan")
        return NO_LAW

    def _array(self) -> np.ndarray:
        member, row = self._place
        if self._arrays is None:
            return self._tensors[member][row].to(self.work).numpy()
        found: np.ndarray = self._arrays[member][row]
        return found

    def _sums(self, array: np.ndarray) -> np.ndarray:
        if self._edges is None:
            self._edges = edges_of(array)
        return self._edges

    def _check(self, row: Row) -> None:
        array = row.array
        total, least = float(row.tensor.sum()), array.min()
        if least >= 0 and abs(total - 1) <= self._tolerance:
            return
        wrong = np.flatnonzero(~(array >= 0) | (array > self._most))
        if len(wrong):
            v = int(wrong[0])
            raise BadInput(self.laws.field, (*self._place, v), _ENTRY, str(array.item(v)))
        raise BadInput(self.laws.field, self._place, "a probability row sums to one", total)


class Exponentials(Opened):
    """Rows of logits: to open one is to form its masses, and with `validate` to refuse one whose masses are none."""

    def __init__(self, laws: Laws, validate: bool) -> None:
        super().__init__(laws, validate)
        self._masses = scratch(laws.field, laws.vocabulary, self.work)

    def open(self, member: int, row: int) -> Callable[[int], float]:
        """Masses of logits as they stand, or, where these are too large or too small, of those below the largest."""
        self._place, self._row, self._edges = (member, row), self._masses, None
        masses = self._masses.tensor
        logits = self._array()
        self.total = float(torch.exp(torch.from_numpy(logits), out=masses).sum())
        if not 1 <= self.total < 1e38:
            highest = float(logits.max())
            if self.validate and not math.isfinite(highest):
                index = self._place if highest == -math.inf else (*self._place, int(logits.argmax()))
                rule = "a row has a finite logit, and neither NaN nor +inf"
                raise BadInput(self.laws.field, index, rule, str(highest))
            self.total = float(torch.sub(torch.from_numpy(logits), highest, out=masses).exp_().sum())
        return self._masses.array.item

    def without(self, tokens: Iterable[int]) -> np.ndarray:
        """The masses themselves are written to: nobody reads them once tokens were rejected."""
        return _emptied(self._masses.array, tokens)


def opened(laws: Laws, validate: bool) -> Opened:
    """Rows of either kind."""
    return Exponentials(laws, validate) if laws.logits else Opened(laws, validate)


def _emptied(row: np.ndarray, tokens: Iterable[int]) -> np.ndarray:
    for token in tokens:
        row[token] = 0
    return row


def greedy(target: Opened, nodes: Listed, member: int) -> Found:
    """Follow the best token of one request as far as the drafts go."""
    tokens, parents = nodes.tokens[member], nodes.parents[member]
    path: list[int] = []
    node = -1
    while True:
        best = target.best(member, node + 1)
        # a parent is an earlier node, so what stands before a node is not below it
        for child in range(node + 1, len(tokens)):
            if tokens[child] == best and parents[child] == node:
                path.append(child)
                node = child
                break
        else:
            return path, best


def point(target: Opened, nodes: Listed, member: int, spend: Spend) -> Found:
    """Drafts that were no draw: a rejected token leaves the row, and nothing else does."""
    tokens, parents = nodes.tokens[member], nodes.parents[member]
    path: list[int] = []
    node = -1
    while True:
        read = target.open(member, node + 1)
        whole = owed = target.total
        gone: dict[int, float] = {}
        for child in range(node + 1, len(tokens)):
            if parents[child] != node:
                continue
            token = tokens[child]
            if gone and owed < whole * SEEN:
                owed = edges_of(target.without(gone)).item(-1)
            if token in gone:
                if target.validate:
                    raise twin(member, child, tokens)
                continue
            mass = read(token)
            target.check(token, mass)
            if spend(child) * owed < mass:
                path.append(child)
                node = child
                break
            gone[token] = mass
            owed -= mass
        else:
            break
    frontier = target.draw(spend(-1), gone)
    if frontier is None:  # rounding rejected all that there is: what had mass last has it still
        frontier = next((token for token, mass in reversed(gone.items()) if mass > 0), NO_LAW)
    return path, frontier


def drawn(target: Opened, draft: Opened, replaced: bool, nodes: Listed, member: int, spend: Spend) -> Found:
    """Drafts from rows: a rejection leaves (p − q)+, and p where that is empty.

    replaced: whether siblings were drawn without replacement.
    """
    tokens, parents = nodes.tokens[member], nodes.parents[member]
    lefts = [scratch(f"left {i}", target.laws.vocabulary, target.work) for i in range(2)]
    path: list[int] = []
    node = -1
    while True:
        read, whole = target.open(member, node + 1), target.total
        of_draft: Callable[[int], float] | None = None
        p: Row | None = None  # what rejections left; the row itself is read whole when the first draft is rejected
        edges = _NOTHING
        gone: list[int] = []
        for child in range(node + 1, len(tokens)):
            if parents[child] != node:
                continue
            token = tokens[child]
            if of_draft is None:
                of_draft, total = draft.open(member, node + 1), draft.total
            q, mass = of_draft(token), read(token)
            draft.check(token, q)
            if p is None:
                target.check(token, mass)
            if gone:
                if draft.validate and token in gone:
                    raise twin(member, child, tokens)
                total -= of_draft(gone[-1])
                if total < draft.total * SEEN:
                    total = edges_of(draft.without(gone)).item(-1)
                if not total > 0 and draft.validate:
                    rule = "siblings drawn without replacement stay within the support"
                    raise BadInput("drafts.token", (member, child), rule)
            share = q / total if total > 0 and token not in gone else 0.0
            if spend(child) * share < mass / whole:
                path.append(child)
                node = child
                break
            before = target.row() if p is None else p
            left = lefts[0] if p is not lefts[0] else lefts[1]
            alpha = whole / total if total > 0 else 0.0
            torch.sub(before.tensor, draft.row().tensor, alpha=alpha, out=left.tensor).relu_()
            if gone:
                left.array[gone] = before.array[gone]
            if replaced:
                gone.append(token)
            found = edges_of(left.array)
            if found.item(-1) != 0:
                if found.item(-1) < 1e-12:  # the next rejections would leave numbers too small for the dtype
                    left.tensor.div_(found.item(-1))
                    found = edges_of(left.array)
                p, edges, whole, read = left, found, found.item(-1), left.array.item
        else:
            break
    frontier = target.draw(spend(-1)) if p is None else draw(p.array, edges, spend(-1))
    return path, NO_LAW if frontier is None else frontier
