"""Deciding on a CPU, one request after the other: a walk opens the rows that it visits and reads their entries.

A row of probabilities that is opened costs nothing; one of logits costs its exponentials and their sum, which stay in
the core's cache for whatever is read of them next. Only the row that the frontier is drawn from is read whole.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from oracle.errors import BadInput
from oracle.fast.drafted import Drafts, Laws
from oracle.fast.drawing import accumulated

BLOCK = 128
"""Tokens whose masses are summed first: a coin finds its block before its token."""
SEEN = 0.125
"""What is owed is one less what is gone, and summed anew where less than this is left: differences lose digits."""

Spend = Callable[[int, int], float]
"""(member, node) → coin; the frontier's of node −1."""
Below = Sequence[tuple[int, int]]
"""Siblings: nodes and their tokens."""
Found = tuple[list[int], int]
"""A path and a frontier."""
NO_LAW = -1
_NOTHING = np.empty(0)


_SCRATCH = threading.local()


def scratch(name: str, size: int, dtype: torch.dtype) -> Tensor:
    """A row [size] that this thread writes to again and again: fresh memory costs as much as a pass over it."""
    held: dict[tuple[str, torch.dtype], Tensor] = _SCRATCH.__dict__
    found = held.get((name, dtype))
    if found is None or found.shape[0] != size:
        found = held[name, dtype] = torch.empty(size, dtype=dtype)
    return found


class Opened:
    """Rows that are opened one by one: the masses of the last one, and what they sum to.

    scores: rows of any numbers, which are left as they are.
    """

    def __init__(self, laws: Laws, validate: bool, scores: bool = False) -> None:
        self.laws, self.validate = laws, validate
        self._checks = validate and not scores
        dtype = laws.sample.dtype
        self.work = accumulated(dtype)
        self.total = 1.0
        self._row: Tensor | None = None
        self._masses: np.ndarray | None = None
        self._buffer = scratch(laws.field, laws.vocabulary, self.work) if laws.logits else None
        rows = laws.rows
        self._tensors = rows.detach() if isinstance(rows, Tensor) else [one.detach() for one in rows]
        self._arrays: Sequence[np.ndarray] | np.ndarray | None = None
        if not laws.logits and dtype == self.work:
            tensors = self._tensors
            self._arrays = tensors.numpy() if isinstance(tensors, Tensor) else [one.numpy() for one in tensors]
        self._place = (0, 0)

    def open(self, member: int, row: int) -> None:
        """Go to a row of a request; with `validate` one that is no law is `BadInput`."""
        self._place, self._row, self._masses = (member, row), None, None
        if self._buffer is not None:
            self._exponentiate(self._buffer)
        elif self._checks:
            self._check()

    def mass(self) -> Callable[[int], float]:
        """What tells the mass of a token, to be divided by `total`, as long as the row is open."""
        if self._buffer is not None or self._arrays is not None:
            return self.array().item
        member, row = self._place
        tensor = self._tensors[member]
        return lambda token: float(tensor[row, token])

    def row(self) -> Tensor:
        """All masses [V], not to be written to."""
        if self._row is None:
            self._row = self._raw().to(self.work)
        return self._row

    def array(self) -> np.ndarray:
        """The same in NumPy."""
        if self._masses is None:
            member, row = self._place
            self._masses = self.row().numpy() if self._arrays is None else self._arrays[member][row]
        return self._masses

    def best(self) -> int:
        """The lowest token of the largest value of a row of any scores; `NO_LAW` where it holds NaN."""
        array = self.array()
        token = int(array.argmax())
        if not math.isnan(array.item(token)):
            return token
        if self.validate:
            raise BadInput(self.laws.field, (*self._place, token), "a row that is read holds no NaN", "nan")
        return NO_LAW

    def without(self, tokens: Sequence[int]) -> Tensor:
        """All masses but those of some tokens, until a row is opened or this is asked again."""
        left = self.row()
        if self._buffer is None:
            left = scratch(f"{self.laws.field} without", self.laws.vocabulary, self.work).copy_(left)
        kept = left.numpy()
        for token in tokens:
            kept[token] = 0
        return left

    def _raw(self) -> Tensor:
        member, row = self._place
        return self._tensors[member][row]

    def _exponentiate(self, buffer: Tensor) -> None:
        """Masses of logits as they stand, or, where these are too large or too small for it, of those below the
        largest."""
        logits = self._raw()
        torch.exp(logits if logits.dtype == self.work else logits.to(self.work), out=buffer)
        self.total = float(buffer.sum())
        if not 1 <= self.total < 1e38:
            highest = float(logits.max())
            if self.validate and not math.isfinite(highest):
                v = int(logits.to(self.work).numpy().argmax())
                index = self._place if highest == -math.inf else (*self._place, v)
                raise BadInput(
                    self.laws.field, index, "a row has a finite logit, and neither NaN nor +inf", str(highest)
                )
            torch.sub(logits.to(self.work), highest, out=buffer)
            self.total = float(buffer.exp_().sum())
        self._row = buffer

    def _check(self) -> None:
        row = self.row()
        size, array = row.shape[0], self.array()
        total, least = float(row.sum(dtype=torch.float64) if size <= BLOCK else row.sum()), float(array.min())
        epsilon = torch.finfo(self.laws.sample.dtype).eps * size
        tolerance = 1e-9 if self.work == torch.float64 else max(1e-9, epsilon)
        if least >= 0 and abs(total - 1) <= tolerance:
            return
        wrong = np.flatnonzero(~(array >= 0) | (array > 1 + tolerance))
        if len(wrong):
            v = int(wrong[0])
            raise BadInput(self.laws.field, (*self._place, v), "a probability lies in [0, 1]", str(array.item(v)))
        raise BadInput(self.laws.field, self._place, "a probability row sums to one", total)


class Nodes:
    """The drafted nodes of a batch on the host: the tokens of each, and who is below whom."""

    def __init__(self, drafts: Drafts, vocabulary: int) -> None:
        self.vocabulary = vocabulary
        self._tokens = drafts.token.numpy()
        self._parents = None if drafts.parent is None else drafts.parent.numpy()
        batch, nodes = self._tokens.shape
        self._lengths: list[int] = [nodes] * batch if drafts.length is None else drafts.length.tolist()

    def below(self, member: int, node: int) -> list[tuple[int, int]]:
        """The children of a node that carry a token, in node order, each with its token."""
        length = self._lengths[member]
        if self._parents is None:
            found = [node + 1] if node + 1 < length else []
        else:
            # a parent is an earlier node, so what stands before a node is not below it
            start = node + 1
            found = [i + start for i in (self._parents[member, start:length] == node).nonzero()[0].tolist()]
        pairs = [(child, self._tokens.item(member, child)) for child in found]
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
    """The walk of sampled verification, with a coin a node."""

    def __init__(self, nodes: Nodes, target: Opened, draft: Opened | None, replaced: bool, spend: Spend) -> None:
        self.nodes, self.target, self.draft, self.replaced, self.spend = nodes, target, draft, replaced, spend
        self._left = [scratch(f"left {i}", target.laws.vocabulary, target.work) for i in range(2 if draft else 0)]

    def decide(self, member: int) -> Found:
        """Path and frontier of one request."""
        path: list[int] = []
        node = -1
        visit = self._point if self.draft is None else self._drawn
        while True:
            self.target.open(member, node + 1)
            below = self.nodes.below(member, node)
            if not below:
                token = draw(self.target.row(), self.spend(member, -1))
                return path, NO_LAW if token is None else token
            accepted, token = visit(member, node, below)
            if accepted is None:
                return path, NO_LAW if token is None else token
            path.append(accepted)
            node = accepted

    def _point(self, member: int, node: int, below: Below) -> tuple[int | None, int | None]:
        """The child that is accepted, or the frontier token: a rejected token leaves the row, and nothing else does."""
        target, spend, mass_of = self.target, self.spend, self.target.mass()
        whole = owed = target.total
        gone: dict[int, float] = {}
        for child, token in below:
            if gone and owed < whole * SEEN:
                owed = float(target.without(list(gone)).sum())
            mass = 0.0 if token in gone else mass_of(token)
            if spend(member, child) * owed < mass:
                return child, None
            if token not in gone:
                gone[token] = mass
                owed -= mass
        found = draw(target.without(list(gone)), self.spend(member, -1))
        if found is None:  # rounding rejected all that there is: what had mass last has it still
            found = next((token for token, mass in reversed(gone.items()) if mass > 0), None)
        return None, found

    def _drawn(self, member: int, node: int, below: Below) -> tuple[int | None, int | None]:
        """The same for drafts from a row: a rejection leaves (p − q)+, and p where that is empty."""
        target, draft = self.target, self.draft
        if draft is None:
            raise BadInput("draft", (), "a proposal that is drawn has draft rows")
        draft.open(member, node + 1)
        p, whole, total = target.row(), target.total, draft.total
        read, drawn = target.mass(), draft.mass()
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
            if self.spend(member, child) * share < read(token) / whole:
                return child, None
            left = self._left[0] if p is not self._left[0] else self._left[1]
            torch.sub(p, draft.row(), alpha=whole / total if total > 0 else 0.0, out=left)
            if gone:
                left.numpy()[gone] = p.numpy()[gone]
            left.clamp_(min=0)
            if self.replaced:
                gone.append(token)
            if i + 1 == len(below):
                found = draw(left, self.spend(member, -1))
                return None, draw(p, self.spend(member, -1)) if found is None else found
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
    if blocks:
        body = row if len(array) == cut else row[:cut]
        edges = body.view(blocks, BLOCK).sum(1).numpy().cumsum(dtype=np.float64)
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
