"""Deciding on a CPU, one request after the other: a walk opens the rows that it visits and reads their entries.

A row of probabilities that is opened costs nothing; one of logits costs its exponentials and their sums, which stay in
the core's cache for whatever is read of them next. Only the row that the frontier is drawn from is read whole. Numbers
are validated where they are read: entries one by one, and whole rows where all of a row is read.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from oracle.errors import BadInput
from oracle.fast.drafted import Laws, Listed
from oracle.fast.drawing import accumulated

BLOCK = 128
"""Tokens whose masses are summed first: a coin finds its block before its token."""
SEEN = 0.125
"""What is owed is one less what is gone, and summed anew where less than this is left: differences lose digits."""

Spend = Callable[[int], float]
"""Node → coin; the frontier's of node −1."""
Below = Sequence[tuple[int, int]]
"""Siblings: nodes and their tokens."""
Found = tuple[list[int], int]
"""A path and a frontier."""
NO_LAW = -1
_ONES = {kind: np.ones(BLOCK, kind) for kind in (np.dtype(np.float32), np.dtype(np.float64))}
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
        tensor = torch.empty(size, dtype=dtype)
        found = _SCRATCH.rows[name, dtype] = Row(tensor, tensor.numpy())
    return found


def edges_of(row: np.ndarray) -> np.ndarray:
    """What all tokens up to the end of each block weigh; sums within a block are of the row's dtype, others float64."""
    size = row.shape[0]
    cut = size - size % BLOCK
    sums = row[:cut].reshape(-1, BLOCK) @ _ONES[row.dtype]  # a product with ones is the fastest sum
    if cut < size:
        sums = np.append(sums, row[cut:].sum())
    return sums.astype(np.float64).cumsum()


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
        self.work = accumulated(laws.sample.dtype)
        rows = laws.rows
        self._tensors = rows.detach() if isinstance(rows, Tensor) else [one.detach() for one in rows]
        self._arrays: Sequence[np.ndarray] | np.ndarray | None = None  # rows in NumPy cost less to point at
        if laws.sample.dtype == self.work:
            tensors = self._tensors
            self._arrays = tensors.numpy() if isinstance(tensors, Tensor) else [one.numpy() for one in tensors]
        self._place = (0, 0)
        self._row: Row | None = None
        self._edges: np.ndarray | None = None

    def open(self, member: int, row: int) -> None:
        """Go to a row of a request."""
        self._place, self._row, self._edges = (member, row), None, None

    def mass(self) -> Callable[[int], float]:
        """What tells the mass of a token, to be divided by `total`, as long as the row is open."""
        member, row = self._place
        if self._arrays is None:
            tensor = self._tensors[member]
            return self._checked(lambda token: float(tensor[row, token]))
        return self._checked(self._arrays[member][row].item)

    def row(self) -> Row:
        """All masses, not to be written to."""
        if self._row is None:
            array = self._array()
            self._row = Row(torch.from_numpy(array), array)
            if self.validate:
                self._check(array)
        return self._row

    def draw(self, coin: float) -> int | None:
        """A token of the row by a coin: see `draw`."""
        array = self.row().array
        return draw(array, self._sums(array), coin)

    def without(self, tokens: Sequence[int]) -> Row:
        """All masses but those of some tokens, until a row is opened or this is asked again."""
        left = scratch(f"{self.laws.field} without", self.laws.vocabulary, self.work)
        np.copyto(left.array, self.row().array)
        return _emptied(left, tokens)

    def best(self) -> int:
        """The lowest token of the largest value; `NO_LAW`, or with `validate` `BadInput`, where there is NaN."""
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

    @property
    def _tolerance(self) -> float:
        dtype = self.laws.sample.dtype
        return 1e-9 if dtype == torch.float64 else max(1e-9, torch.finfo(dtype).eps * self.laws.vocabulary)

    def _checked(self, read: Callable[[int], float]) -> Callable[[int], float]:
        if not self.validate:
            return read
        place, most = self._place, 1 + self._tolerance

        def checked(token: int) -> float:
            value = read(token)
            if not 0 <= value <= most:
                raise BadInput(self.laws.field, (*place, token), _ENTRY, str(value))
            return value

        return checked

    def _check(self, array: np.ndarray) -> None:
        total, least = self._sums(array).item(-1), float(array.min())
        if least >= 0 and abs(total - 1) <= self._tolerance:
            return
        wrong = np.flatnonzero(~(array >= 0) | (array > 1 + self._tolerance))
        if len(wrong):
            v = int(wrong[0])
            raise BadInput(self.laws.field, (*self._place, v), _ENTRY, str(array.item(v)))
        raise BadInput(self.laws.field, self._place, "a probability row sums to one", total)


class Exponentials(Opened):
    """Rows of logits: to open one is to form its masses, and with `validate` to refuse one whose masses are none."""

    def __init__(self, laws: Laws, validate: bool) -> None:
        super().__init__(laws, validate)
        self._row = self._masses = scratch(laws.field, laws.vocabulary, self.work)

    def open(self, member: int, row: int) -> None:
        """Masses of logits as they stand, or, where these are too large or too small, of those below the largest."""
        self._place = member, row
        tensor, array = self._masses
        if self._arrays is None:
            torch.exp(torch.from_numpy(self._array()), out=tensor)
        else:  # a copy fetches memory faster than exponentials ask for it
            np.copyto(array, self._arrays[member][row])
            tensor.exp_()
        self._edges = edges_of(array)
        self.total = self._edges.item(-1)
        if not 1 <= self.total < 1e38:
            logits = self._array()
            highest = float(logits.max())
            if self.validate and not math.isfinite(highest):
                index = self._place if highest == -math.inf else (*self._place, int(logits.argmax()))
                rule = "a row has a finite logit, and neither NaN nor +inf"
                raise BadInput(self.laws.field, index, rule, str(highest))
            torch.sub(torch.from_numpy(logits), highest, out=tensor).exp_()
            self._edges = edges_of(array)
            self.total = self._edges.item(-1)

    def mass(self) -> Callable[[int], float]:
        """As of probabilities."""
        return self._masses.array.item

    def row(self) -> Row:
        """As of probabilities."""
        return self._masses

    def without(self, tokens: Sequence[int]) -> Row:
        """The masses themselves are written to: nobody reads them once tokens were rejected."""
        return _emptied(self._masses, tokens)


def opened(laws: Laws, validate: bool) -> Opened:
    """Rows of either kind."""
    return Exponentials(laws, validate) if laws.logits else Opened(laws, validate)


def _emptied(row: Row, tokens: Sequence[int]) -> Row:
    for token in tokens:
        row.array[token] = 0
    return row


def below(nodes: Listed, member: int, node: int) -> list[tuple[int, int]]:
    """The children of a node, in node order, each with its token."""
    tokens, start = nodes.tokens[member], node + 1
    if nodes.parents is None:
        return [(start, tokens[start])] if start < len(tokens) else []
    parents = nodes.parents[member]
    # a parent is an earlier node, so what stands before a node is not below it
    return [(i, tokens[i]) for i in range(start, len(tokens)) if parents[i] == node]


def greedy(target: Opened, nodes: Listed, member: int) -> Found:
    """Follow the best token of one request as far as the drafts go."""
    path: list[int] = []
    node = -1
    while True:
        target.open(member, node + 1)
        best = target.best()
        match = next((child for child, token in below(nodes, member, node) if token == best), None)
        if match is None:
            return path, best
        path.append(match)
        node = match


class Sampling:
    """The walk of sampled verification, with a coin a node. spender: of a request, what its coins are."""

    def __init__(
        self, nodes: Listed, target: Opened, draft: Opened | None, replaced: bool, spender: Callable[[int], Spend]
    ) -> None:
        self.nodes, self.target, self.draft, self.replaced, self.spender = nodes, target, draft, replaced, spender
        self._left = [scratch(f"left {i}", target.laws.vocabulary, target.work) for i in range(2 if draft else 0)]

    def decide(self, member: int) -> Found:
        """Path and frontier of one request."""
        path: list[int] = []
        node, spend, token = -1, self.spender(member), None
        visit = self._point if self.draft is None else self._drawn
        while True:
            self.target.open(member, node + 1)
            children = below(self.nodes, member, node)
            if not children:
                token = self.target.draw(spend(-1))
                break
            accepted, token = visit(member, node, children, spend)
            if accepted is None:
                break
            path.append(accepted)
            node = accepted
        return path, NO_LAW if token is None else token

    def _point(self, member: int, node: int, children: Below, spend: Spend) -> tuple[int | None, int | None]:
        """The child that is accepted, or the frontier token: a rejected token leaves the row, and nothing else does."""
        target, mass_of = self.target, self.target.mass()
        whole = owed = target.total
        gone: dict[int, float] = {}
        for child, token in children:
            if gone and owed < whole * SEEN:
                owed = edges_of(target.without(list(gone)).array).item(-1)
            mass = 0.0 if token in gone else mass_of(token)
            if spend(child) * owed < mass:
                return child, None
            if token not in gone:
                gone[token] = mass
                owed -= mass
        left = target.without(list(gone)).array
        found = draw(left, edges_of(left), spend(-1))
        if found is None:  # rounding rejected all that there is: what had mass last has it still
            found = next((token for token, mass in reversed(gone.items()) if mass > 0), None)
        return None, found

    def _drawn(self, member: int, node: int, children: Below, spend: Spend) -> tuple[int | None, int | None]:
        """The same for drafts from a row: a rejection leaves (p − q)+, and p where that is empty."""
        target, draft = self.target, self.draft
        if draft is None:
            raise BadInput("draft", (), "a proposal that is drawn has draft rows")
        draft.open(member, node + 1)
        whole, total = target.total, draft.total
        read, drawn = target.mass(), draft.mass()
        p: Row | None = None  # what a rejection left; a row is read whole when the first one is
        gone: list[int] = []
        for i, (child, token) in enumerate(children):
            q = drawn(token)
            if gone and self.replaced:
                total -= drawn(gone[-1])
                if total < draft.total * SEEN:
                    total = edges_of(draft.without(gone).array).item(-1)
                if not total > 0 and draft.validate:
                    rule = "siblings drawn without replacement stay within the support"
                    raise BadInput("drafts.token", (member, child), rule)
            share = q / total if total > 0 and token not in gone else 0.0
            if spend(child) * share < read(token) / whole:
                return child, None
            p = target.row() if p is None else p
            left = self._left[0] if p is not self._left[0] else self._left[1]
            torch.sub(p.tensor, draft.row().tensor, alpha=whole / total if total > 0 else 0.0, out=left.tensor)
            if gone:
                left.array[gone] = p.array[gone]
            left.tensor.clamp_(min=0)
            if self.replaced:
                gone.append(token)
            edges = edges_of(left.array)
            if i + 1 == len(children):
                found = draw(left.array, edges, spend(-1))
                return None, draw(p.array, edges_of(p.array), spend(-1)) if found is None else found
            if edges.item(-1) != 0:
                if edges.item(-1) < 1e-12:  # the next rejections would leave numbers too small for the dtype
                    left.tensor.div_(edges.item(-1))
                    edges = edges_of(left.array)
                p, whole, read = left, edges.item(-1), left.array.item
        return None, None
