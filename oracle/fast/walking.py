"""Deciding on a CPU, one request after the other: a walk opens the rows that it visits and reads their entries.

A row of probabilities that is opened costs nothing; one of logits costs its exponentials and their sum, which stay in
the core's cache for whatever is read of them next. Only the row that the frontier is drawn from is read whole.
"""

from __future__ import annotations

import math
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
Children = Sequence[Sequence[int]] | None
"""Of the root, then of each node; None of a chain."""
Found = tuple[list[int], int]
"""A path and a frontier."""
NO_LAW = -1


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
        self._buffer = torch.empty(laws.vocabulary, dtype=self.work) if laws.logits else None
        self._arrays: Sequence[np.ndarray] | np.ndarray | None = None
        if not laws.logits and dtype != torch.bfloat16:
            rows = laws.rows
            self._arrays = rows.detach().numpy() if isinstance(rows, Tensor) else [r.detach().numpy() for r in rows]
        self._place = (0, 0)

    def open(self, member: int, row: int) -> None:
        """Go to a row of a request; with `validate` one that is no law is `BadInput`."""
        self._place, self._row, self._masses = (member, row), None, None
        if self._buffer is not None:
            self._exponentiate(self._buffer)
        elif self._checks:
            self._check()

    def mass(self, token: int) -> float:
        """Of one token, to be divided by `total`."""
        if self._arrays is not None:
            member, row = self._place
            return float(self._arrays[member].item(row, token))
        return float(self.array().item(token))

    def row(self) -> Tensor:
        """All masses [V], not to be written to."""
        if self._row is None:
            self._row = self._raw().to(self.work)
        return self._row

    def array(self) -> np.ndarray:
        """The same in NumPy."""
        if self._masses is None:
            self._masses = self.row().numpy()
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

    def outside(self, tokens: Sequence[int]) -> float:
        """The mass of all tokens but some."""
        left = self.row().clone()
        left[list(tokens)] = 0
        return float(left.sum())

    def _raw(self) -> Tensor:
        member, row = self._place
        return self.laws.of(member).detach()[row]

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


def children_of(parents: Sequence[int]) -> list[list[int]]:
    """Children of the root, then of each node, in node order; a node whose parent is none has no place."""
    found: list[list[int]] = [[] for _ in range(len(parents) + 1)]
    for i, parent in enumerate(parents):
        if -1 <= parent < i:
            found[parent + 1].append(i)
    return found


def members(drafts: Drafts) -> tuple[list[list[int]], list[Children]]:
    """The tokens and the children of the nodes of each request that count."""
    tokens: list[list[int]] = drafts.token.tolist()
    if drafts.length is not None:
        tokens = [row[: max(length, 0)] for row, length in zip(tokens, drafts.length.tolist())]
    if drafts.parent is None:
        return tokens, [None] * len(tokens)
    parents: list[list[int]] = drafts.parent.tolist()
    return tokens, [children_of(above[: len(row)]) for above, row in zip(parents, tokens)]


def _below(children: Children, node: int, tokens: Sequence[int], vocabulary: int) -> Sequence[int]:
    """The children of a node that carry a token."""
    if children is None:
        found: Sequence[int] = (node + 1,) if node + 1 < len(tokens) else ()
    else:
        found = children[node + 1]
    return [i for i in found if 0 <= tokens[i] < vocabulary]


def greedy(target: Opened, member: int, tokens: Sequence[int], children: Children) -> Found:
    """Follow the best token as far as the drafts go."""
    path: list[int] = []
    node, vocabulary = -1, target.laws.vocabulary
    while True:
        target.open(member, node + 1)
        best = target.best()
        match = next((i for i in _below(children, node, tokens, vocabulary) if tokens[i] == best), None)
        if match is None:
            return path, best
        path.append(match)
        node = match


class Sampling:
    """The walk of sampled verification, with a coin a node."""

    def __init__(self, target: Opened, draft: Opened | None, replaced: bool, spend: Spend) -> None:
        self.target, self.draft, self.replaced, self.spend = target, draft, replaced, spend
        self._left = [torch.empty(target.laws.vocabulary, dtype=target.work) for _ in range(2 if draft else 0)]

    def decide(self, member: int, tokens: Sequence[int], children: Children) -> Found:
        """Path and frontier of one request."""
        path: list[int] = []
        node, vocabulary = -1, self.target.laws.vocabulary
        visit = self._point if self.draft is None else self._drawn
        while True:
            self.target.open(member, node + 1)
            below = _below(children, node, tokens, vocabulary)
            if not below:
                token = draw(self.target.row(), self.spend(member, -1))
                return path, NO_LAW if token is None else token
            accepted, token = visit(member, node, below, tokens)
            if accepted is None:
                return path, NO_LAW if token is None else token
            path.append(accepted)
            node = accepted

    def _point(
        self, member: int, node: int, below: Sequence[int], tokens: Sequence[int]
    ) -> tuple[int | None, int | None]:
        """The child that is accepted, or the frontier token: a rejected token leaves the row, and nothing else does."""
        target = self.target
        whole = owed = target.total
        gone: dict[int, float] = {}
        for child in below:
            token = tokens[child]
            if gone and owed < whole * SEEN:
                owed = target.outside(list(gone))
            mass = 0.0 if token in gone else target.mass(token)
            if self.spend(member, child) * owed < mass:
                return child, None
            if token not in gone:
                gone[token] = mass
                owed -= mass
        found = draw(target.row(), self.spend(member, -1), list(gone))
        if found is None:  # rounding rejected all that there is: what had mass last has it still
            found = next((token for token, mass in reversed(gone.items()) if mass > 0), None)
        return None, found

    def _drawn(
        self, member: int, node: int, below: Sequence[int], tokens: Sequence[int]
    ) -> tuple[int | None, int | None]:
        """The same for drafts from a row: a rejection leaves (p − q)+, and p where that is empty."""
        target, draft = self.target, self.draft
        if draft is None:
            raise BadInput("draft", (), "a proposal that is drawn has draft rows")
        draft.open(member, node + 1)
        p, whole, total = target.row(), target.total, draft.total
        read: Callable[[int], float] = target.mass
        gone: list[int] = []
        for i, child in enumerate(below):
            token = tokens[child]
            q = draft.mass(token)
            if gone and self.replaced:
                total = self._outside(draft, gone, total)
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

    @staticmethod
    def _outside(draft: Opened, gone: Sequence[int], total: float) -> float:
        left = total - draft.mass(gone[-1])
        return left if left > draft.total * SEEN else draft.outside(gone)


def draw(row: Tensor, coin: float, gone: Sequence[int] = ()) -> int | None:
    """The first token v with coin · mass < Σ of the masses [V] up to v, some tokens counted as none.

    The last token of positive mass where rounding leaves none; None of a row without mass, −1 of one that is no law.
    """
    array = row.numpy()
    blocks = len(array) // BLOCK if len(array) > 4 * BLOCK else 0
    cut = blocks * BLOCK
    sums = np.empty(blocks + 1)
    if blocks:
        sums[:blocks] = torch.sum(row[:cut].view(blocks, BLOCK), 1).numpy()
    for block in {blocks, *(min(token // BLOCK, blocks) for token in gone)}:
        sums[block] = _block(array, block, blocks, gone).sum()
    edges = sums.cumsum()
    total = edges.item(-1)
    if not 0 < total < math.inf:
        return None if total == 0 else NO_LAW
    limit = coin * total
    block = int(edges.searchsorted(limit, "right"))
    if block <= blocks:
        found = _block(array, block, blocks, gone)
        inner = found.cumsum() + (edges.item(block - 1) if block else 0.0)
        v = int(inner.searchsorted(limit, "right"))
        if v < len(found) and found.item(v) > 0:
            return block * BLOCK + v
    block = min(block, blocks)
    while True:  # some block has mass, as the total has
        positive = _block(array, block, blocks, gone).nonzero()[0]
        if len(positive):
            return block * BLOCK + int(positive[-1])
        block -= 1


def _block(array: np.ndarray, block: int, blocks: int, gone: Sequence[int]) -> np.ndarray:
    """The masses of a block in float64, those that are gone as 0; the block behind the last one is the rest."""
    start = block * BLOCK
    found = array[start : start + BLOCK if block < blocks else None].astype(np.float64)
    for token in gone:
        if 0 <= token - start < len(found):
            found[token - start] = 0
    return found
