"""Deciding on a CPU, one request after the other: a walk opens the rows that it visits and reads their entries.

A row of probabilities that is opened costs nothing; one of logits costs its exponentials and their sum, which stay in
the core's cache for whatever is read of them next. Only the row that the frontier is drawn from is read whole. Numbers
are validated where they are read: entries one by one, and whole rows where all of a row is read.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence

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
_ONES = {np.dtype(kind): np.ones(BLOCK, kind) for kind in (np.float32, np.float64)}
_NOTHING = np.empty(0)
_ENTRY = "a probability lies in [0, 1]"


class _Scratch(threading.local):
    def __init__(self) -> None:
        self.rows: dict[tuple[str, torch.dtype], Tensor] = {}


_SCRATCH = _Scratch()


def scratch(name: str, size: int, dtype: torch.dtype) -> Tensor:
    """A row [size] that this thread writes to again and again: fresh memory costs as much as a pass over it."""
    held = _SCRATCH.rows
    found = held.get((name, dtype))
    if found is None or found.shape[0] != size:
        found = held[name, dtype] = torch.empty(size, dtype=dtype)
    return found


class Opened:
    """Rows of probabilities, or of any scores, that are opened one by one: the masses of the last one, and their sum.

    validate: whether what is read of a row of probabilities is looked at: `BadInput` where it is no law's.
    """

    def __init__(self, laws: Laws, validate: bool) -> None:
        self.laws, self.validate, self.total = laws, validate, 1.0
        dtype, rows = laws.sample.dtype, laws.rows
        self.work = accumulated(dtype)
        epsilon = torch.finfo(dtype).eps * laws.vocabulary
        self._most = 1 + (1e-9 if dtype == torch.float64 else max(1e-9, epsilon))
        self._tensors = rows.detach() if isinstance(rows, Tensor) else [one.detach() for one in rows]
        self._arrays: Sequence[np.ndarray] | np.ndarray | None = None  # rows in NumPy cost less to point at
        if dtype == self.work:
            tensors = self._tensors
            self._arrays = tensors.numpy() if isinstance(tensors, Tensor) else [one.numpy() for one in tensors]
        self._place = (0, 0)
        self._row: Tensor | None = None

    def open(self, member: int, row: int) -> None:
        """Go to a row of a request."""
        self._place, self._row = (member, row), None

    def mass(self) -> Callable[[int], float]:
        """What tells the mass of a token, to be divided by `total`, as long as the row is open."""
        member, row = self._place
        if self._arrays is None:
            tensor = self._tensors[member]
            return self._checked(lambda token: float(tensor[row, token]))
        return self._checked(self._arrays[member][row].item)

    def row(self) -> Tensor:
        """All masses [V], not to be written to."""
        if self._row is None:
            self._row = torch.from_numpy(self._array())
            if self.validate:
                self._check(self._row)
        return self._row

    def without(self, tokens: Sequence[int]) -> Tensor:
        """All masses but those of some tokens, until a row is opened or this is asked again."""
        left = scratch(f"{self.laws.field} without", self.laws.vocabulary, self.work).copy_(self.row())
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

    def _checked(self, read: Callable[[int], float]) -> Callable[[int], float]:
        if not self.validate:
            return read
        place, most = self._place, self._most

        def checked(token: int) -> float:
            value = read(token)
            if not 0 <= value <= most:
                raise BadInput(self.laws.field, (*place, token), _ENTRY, str(value))
            return value

        return checked

    def _check(self, row: Tensor) -> None:
        size, array = row.shape[0], row.numpy()
        total, least = float(row.sum(dtype=torch.float64) if size <= BLOCK else row.sum()), float(array.min())
        if least >= 0 and abs(total - 1) <= self._most - 1:
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
        self._buffer = scratch(laws.field, laws.vocabulary, self.work)
        self._masses = self._buffer.numpy()

    def open(self, member: int, row: int) -> None:
        """Masses of logits as they stand, or, where these are too large or too small, of those below the largest."""
        super().open(member, row)
        buffer = self._buffer
        if self._arrays is None:
            torch.exp(torch.from_numpy(self._array()), out=buffer)
        else:  # a copy fetches memory faster than exponentials ask for it
            np.copyto(self._masses, self._arrays[member][row])
            buffer.exp_()
        self.total = float(buffer.sum())
        if not 1 <= self.total < 1e38:
            logits = torch.from_numpy(self._array())
            highest = float(logits.max())
            if self.validate and not math.isfinite(highest):
                index = self._place if highest == -math.inf else (*self._place, int(logits.numpy().argmax()))
                rule = "a row has a finite logit, and neither NaN nor +inf"
                raise BadInput(self.laws.field, index, rule, str(highest))
            self.total = float(torch.sub(logits, highest, out=buffer).exp_().sum())

    def mass(self) -> Callable[[int], float]:
        """As of probabilities."""
        return self._masses.item

    def row(self) -> Tensor:
        """As of probabilities."""
        return self._buffer

    def without(self, tokens: Sequence[int]) -> Tensor:
        """The masses themselves are written to: nobody reads them once tokens were rejected."""
        return _emptied(self._buffer, tokens)


def opened(laws: Laws, validate: bool) -> Opened:
    """Rows of either kind."""
    return Exponentials(laws, validate) if laws.logits else Opened(laws, validate)


def _emptied(row: Tensor, tokens: Sequence[int]) -> Tensor:
    kept = row.numpy()
    for token in tokens:
        kept[token] = 0
    return row


class Nodes:
    """Who is below whom among the nodes of a batch."""

    def __init__(self, found: Listed, vocabulary: int) -> None:
        self.vocabulary, (self._tokens, self._parents) = vocabulary, found

    def below(self, member: int, node: int) -> list[tuple[int, int]]:
        """The children of a node that carry a token, in node order, each with its token."""
        tokens, start = self._tokens[member], node + 1
        # a parent is an earlier node, so what stands before a node is not below it
        if self._parents is None:
            pairs = [(start, tokens[start])] if start < len(tokens) else []
        else:
            parents = self._parents[member]
            pairs = [(i, tokens[i]) for i in range(start, len(tokens)) if parents[i] == node]
        return [pair for pair in pairs if 0 <= pair[1] < self.vocabulary]


def greedy(target: Opened, nodes: Nodes, member: int) -> Found:
    """Follow the best token of one request as far as the drafts go."""
    path: list[int] = []
    node = -1
    while True:
        target.open(member, node + 1)
        best = target.best()
        match = next((child for child, token in nodes.below(member, node) if token == best), None)
        if match is None:
            return path, best
        path.append(match)
        node = match


class Sampling:
    """The walk of sampled verification, with a coin a node. spender: of a request, what its coins are."""

    def __init__(
        self, nodes: Nodes, target: Opened, draft: Opened | None, replaced: bool, spender: Callable[[int], Spend]
    ) -> None:
        self.nodes, self.target, self.draft, self.replaced, self.spender = nodes, target, draft, replaced, spender
        self._left = [scratch(f"left {i}", target.laws.vocabulary, target.work) for i in range(2 if draft else 0)]

    def decide(self, member: int) -> Found:
        """Path and frontier of one request."""
        path: list[int] = []
        node, spend = -1, self.spender(member)
        visit = self._point if self.draft is None else self._drawn
        while True:
            self.target.open(member, node + 1)
            below = self.nodes.below(member, node)
            if not below:
                token = draw(self.target.row(), spend(-1))
                return path, NO_LAW if token is None else token
            accepted, token = visit(member, node, below, spend)
            if accepted is None:
                return path, NO_LAW if token is None else token
            path.append(accepted)
            node = accepted

    def _point(self, member: int, node: int, below: Below, spend: Spend) -> tuple[int | None, int | None]:
        """The child that is accepted, or the frontier token: a rejected token leaves the row, and nothing else does."""
        target, mass_of = self.target, self.target.mass()
        whole = owed = target.total
        gone: dict[int, float] = {}
        for child, token in below:
            if gone and owed < whole * SEEN:
                owed = float(target.without(list(gone)).sum())
            mass = 0.0 if token in gone else mass_of(token)
            if spend(child) * owed < mass:
                return child, None
            if token not in gone:
                gone[token] = mass
                owed -= mass
        found = draw(target.without(list(gone)), spend(-1))
        if found is None:  # rounding rejected all that there is: what had mass last has it still
            found = next((token for token, mass in reversed(gone.items()) if mass > 0), None)
        return None, found

    def _drawn(self, member: int, node: int, below: Below, spend: Spend) -> tuple[int | None, int | None]:
        """The same for drafts from a row: a rejection leaves (p − q)+, and p where that is empty."""
        target, draft = self.target, self.draft
        if draft is None:
            raise BadInput("draft", (), "a proposal that is drawn has draft rows")
        draft.open(member, node + 1)
        whole, total = target.total, draft.total
        read, drawn = target.mass(), draft.mass()
        p: Tensor | None = None  # what a rejection left; a row is read whole when the first one is
        gone: list[int] = []
        for i, (child, token) in enumerate(below):
            q = drawn(token)
            if gone and self.replaced:
                total -= drawn(gone[-1])
                if total < draft.total * SEEN:
                    total = float(draft.without(gone).sum())
                if not total > 0 and draft.validate:
                    rule = "siblings drawn without replacement stay within the support"
                    raise BadInput("drafts.token", (member, child), rule)
            share = q / total if total > 0 and token not in gone else 0.0
            if spend(child) * share < read(token) / whole:
                return child, None
            p = target.row() if p is None else p
            left = self._left[0] if p is not self._left[0] else self._left[1]
            torch.sub(p, draft.row(), alpha=whole / total if total > 0 else 0.0, out=left)
            if gone:
                left.numpy()[gone] = p.numpy()[gone]
            left.clamp_(min=0)
            if self.replaced:
                gone.append(token)
            if i + 1 == len(below):
                found = draw(left, spend(-1))
                return None, draw(p, spend(-1)) if found is None else found
            sum_left = float(left.sum())
            if sum_left != 0:
                if sum_left < 1e-12:  # the next rejections would leave numbers too small for the dtype
                    left.div_(sum_left)
                    sum_left = float(left.sum())
                p, whole = left, sum_left
                read = left.numpy().item
        return None, None


def draw(row: Tensor, coin: float) -> int | None:
    """The first token v with coin · mass < Σ of the masses [V] up to v.

    The last token of positive mass where rounding leaves none; None of a row without mass, `NO_LAW` of one that is
    none. Sums of blocks are float32 at least, sums of them and within them float64.
    """
    array = row.numpy()
    blocks = len(array) // BLOCK if len(array) > 4 * BLOCK else 0
    cut = blocks * BLOCK
    edges = rest = _NOTHING
    if blocks:  # a product with ones is the fastest sum
        edges = (array[:cut].reshape(blocks, BLOCK) @ _ONES[array.dtype]).cumsum(dtype=np.float64)
    if len(array) > cut:
        rest = array[cut:].cumsum(dtype=np.float64)
        if blocks:
            rest += edges.item(-1)
    total = (rest if len(rest) else edges).item(-1)
    if not 0 < total < math.inf:
        return None if total == 0 else NO_LAW
    limit = coin * total
    start, inner = cut, rest
    if blocks and limit < edges.item(-1):
        block = int(edges.searchsorted(limit, "right"))
        start = block * BLOCK
        inner = array[start : start + BLOCK].cumsum(dtype=np.float64)
        if block:
            inner += edges.item(block - 1)
    v = int(inner.searchsorted(limit, "right"))
    if v < len(inner) and array.item(start + v) > 0:
        return start + v
    positive = array[: start + len(inner)].nonzero()[0]  # sums were rounded: the last one so far, or else of all
    return int(positive[-1] if len(positive) else array.nonzero()[0][-1])
