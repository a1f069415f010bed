"""Deciding all requests at once, in a number of operations that no number of the batch decides: no synchronisation, and
a CUDA graph can hold it. Where the host would stop at a rejection, rows and nodes behind it are masked instead."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from oracle.fast.coins import Coins
from oracle.fast.drafted import Decisions, Drafts, Laws
from oracle.fast.drawing import accumulated, inverse_cdf, residual, without


class Shape(NamedTuple):
    """Nodes that count [B, N], their tokens, where their parents' rows stand (0 = the root's), and who is a sibling."""

    counts: Tensor
    token: Tensor
    above: Tensor

    @property
    def nodes(self) -> int:
        """N."""
        return int(self.token.shape[1])

    @property
    def earlier(self) -> Tensor:
        """bool [B, N, N]: whether node j is a sibling before node i."""
        same = self.above.unsqueeze(2) == self.above.unsqueeze(1)
        both = self.counts.unsqueeze(2) & self.counts.unsqueeze(1)
        return (same & both).tril(-1)

    def first(self, which: Tensor) -> Tensor:
        """int64 [B, N+1]: the first child of the root and of each node among some nodes [B, N]; N = none."""
        nodes, batch = self.nodes, self.token.shape[0]
        ids = torch.arange(nodes, device=self.token.device).expand(batch, nodes)
        empty = torch.full((batch, nodes + 1), nodes, dtype=torch.int64, device=self.token.device)
        return empty.scatter_reduce(1, self.above, torch.where(which, ids, nodes), "amin")


def shape_of(drafts: Drafts, vocabulary: int) -> Shape:
    """A node whose parent or token is none does not count, nor does one behind its request's length."""
    token = drafts.token
    ids = torch.arange(token.shape[1], device=token.device).expand(token.shape)
    parent = ids - 1 if drafts.parent is None else drafts.parent
    counts = (token >= 0) & (token < vocabulary) & (parent >= -1) & (parent < ids)
    if drafts.length is not None:
        counts = counts & (ids < drafts.length.unsqueeze(1))
    return Shape(counts, torch.where(counts, token, 0), torch.where(counts, parent + 1, 0))


def path_of(shape: Shape, passing: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Path [B, N], number of accepted nodes [B] and the last of them [B], −1 = the root.

    passing: bool [B, N], whether a node is accepted where it is tested. A node is on the path if it is the first
    passing child of its parent and its ancestors are: ancestors are joined in log N doublings.
    """
    nodes, device = shape.nodes, shape.token.device
    batch = shape.token.shape[0]
    ids = torch.arange(nodes, device=device).expand(batch, nodes)
    first = shape.first(passing)
    chosen = passing & (first.gather(1, shape.above) == ids)
    on = torch.cat([torch.ones_like(chosen[:, :1]) if nodes else chosen.new_ones(batch, 1), chosen], 1)
    up = torch.cat([torch.zeros_like(first[:, :1]), shape.above], 1)
    for _ in range(nodes.bit_length()):
        on = on & on.gather(1, up)
        up = up.gather(1, up)
    on = on[:, 1:]
    path = torch.where(on, ids, nodes).sort(1).values
    last = torch.where(on, ids, -1)
    end = torch.cat([last, last.new_full((batch, 1), -1)], 1).amax(1)
    return torch.where(path < nodes, path, -1), on.sum(1), end


def greedy(drafts: Drafts, target: Laws) -> Decisions:
    """The best token of every row, and the path along them."""
    rows, starts = target.packed()
    shape = shape_of(drafts, target.vocabulary)
    top, best = rows.max(-1)
    best = torch.where(torch.isnan(top), -1, best)
    passing = shape.counts & (best[starts.unsqueeze(1) + shape.above] == shape.token)
    path, accepted, last = path_of(shape, passing)
    return Decisions(path, accepted, best[starts + last + 1])


class Entries(NamedTuple):
    """Rows [R, V] of laws, where each request's begin, and the log-sum-exp [R] of logits."""

    rows: Tensor
    starts: Tensor
    normaliser: Tensor | None

    def at(self, row: Tensor, token: Tensor) -> Tensor:
        """float64: probabilities of tokens [B, ...] in rows [B, ...] of their requests."""
        place = self._place(row)
        value = self.rows[place, token].to(torch.float64)
        return value if self.normaliser is None else (value - self.normaliser[place].to(torch.float64)).exp()

    def law(self, row: Tensor) -> Tensor:
        """[B, V], float32 at least: the law of a row of each request."""
        place = self._place(row)
        found = self.rows[place].to(accumulated(self.rows.dtype))
        return found if self.normaliser is None else (found - self.normaliser[place].unsqueeze(-1)).exp()

    def _place(self, row: Tensor) -> Tensor:
        starts = self.starts.view(-1, *[1] * (row.ndim - 1))
        return (starts + row).clamp(max=self.rows.shape[0] - 1)


def entries_of(laws: Laws) -> Entries:
    """Logits are normalised row by row; what that makes beside them is of the size of one row a request."""
    rows, starts = laws.packed()
    if not laws.logits:
        return Entries(rows, starts, None)
    step, total = max(len(starts), 1), max(rows.shape[0], 1)
    parts = [torch.logsumexp(rows[i : i + step].to(accumulated(rows.dtype)), -1) for i in range(0, total, step)]
    return Entries(rows, starts, torch.cat(parts))


def point(drafts: Drafts, coins: Coins, target: Laws) -> Decisions:
    """Drafts that were no draw: a rejected token leaves the row, so entries alone decide."""
    shape, law = shape_of(drafts, target.vocabulary), entries_of(target)
    p = torch.where(shape.counts, law.at(shape.above, shape.token), 0.0)
    earlier = shape.earlier
    twin = (earlier & (shape.token.unsqueeze(2) == shape.token.unsqueeze(1))).any(2)
    gone = torch.where(earlier & ~twin.unsqueeze(1), p.unsqueeze(1), 0.0).sum(2)
    owed = (1 - gone).clamp_(min=0)
    passing = shape.counts & ~twin & (coins.accept.to(torch.float64) * owed < p)
    path, accepted, last = path_of(shape, passing)
    row = law.law(last + 1)
    rejected = shape.counts & (shape.above == (last + 1).unsqueeze(1))
    limit = torch.where(rejected, 0.0, torch.inf).to(row.dtype)
    left = row.scatter_reduce(1, shape.token, limit, "amin")
    # where rounding rejected all that there is, what had mass last has it still
    ids = torch.arange(shape.nodes, device=p.device).expand(p.shape)
    massive = torch.where(rejected & (p > 0), ids, -1)
    kept = torch.cat([massive, massive.new_full((len(p), 1), -1)], 1).amax(1)
    padded = torch.cat([shape.token, shape.token.new_full((len(p), 1), -1)], 1)
    otherwise = padded.gather(1, torch.where(kept < 0, shape.nodes, kept).unsqueeze(1)).squeeze(1)
    return Decisions(path, accepted, torch.where(left.sum(1) == 0, otherwise, inverse_cdf(left, coins.frontier)))


def chain(drafts: Drafts, coins: Coins, target: Laws, draft: Laws) -> Decisions:
    """Chains drawn from rows: entries alone decide, and one row of each law is read whole."""
    shape, law, drawn = shape_of(drafts, target.vocabulary), entries_of(target), entries_of(draft)
    passing = shape.counts & (
        coins.accept.to(torch.float64) * drawn.at(shape.above, shape.token) < law.at(shape.above, shape.token)
    )
    path, accepted, last = path_of(shape, passing)
    p, q = law.law(last + 1), drawn.law((last + 1).clamp(max=max(shape.nodes - 1, 0)))
    rejected = (shape.counts & (shape.above == (last + 1).unsqueeze(1))).any(1)
    left = torch.where(rejected.unsqueeze(1), residual(p, q.to(p.dtype)), p)
    return Decisions(path, accepted, inverse_cdf(left, coins.frontier))


def tree(
    drafts: Drafts, coins: Coins, target: Laws, draft: Laws, replaced: bool, tests: int | None = None
) -> Decisions:
    """Trees drawn from rows, a test of every request at a time: `tests` of them, None = N.

    replaced: whether siblings were drawn without replacement. Holds two rows a request.
    """
    shape, law, drawn = shape_of(drafts, target.vocabulary), entries_of(target), entries_of(draft)
    nodes, (batch, _) = shape.nodes, shape.token.shape
    ids = torch.arange(nodes + 1, device=shape.token.device)
    first = shape.first(shape.counts)
    later = torch.where(shape.earlier.transpose(1, 2), ids[:nodes], nodes)
    following = later.amin(2) if nodes else first[:, :0]
    every = torch.arange(batch, device=shape.token.device)
    root = torch.zeros_like(every)
    p, q = law.law(root), drawn.law(root).to(accumulated(target.sample.dtype))
    cursor, passing = first[:, 0], torch.zeros_like(shape.counts)
    for _ in range(nodes if tests is None else min(tests, nodes)):
        active = cursor < nodes
        node = cursor.clamp(max=nodes - 1)
        token, coin = shape.token[every, node], coins.accept[every, node]
        accepted = active & (coin.to(torch.float64) * q[every, token] < p[every, token])
        rejected = active & ~accepted
        passing = passing.scatter(1, node.unsqueeze(1), (passing[every, node] | accepted).unsqueeze(1))
        moved = torch.where(accepted, node + 1, 0)
        p = torch.where(accepted.unsqueeze(1), law.law(moved), torch.where(rejected.unsqueeze(1), residual(p, q), p))
        kept = torch.where(rejected.unsqueeze(1), without(q, token), q) if replaced else q
        q = torch.where(accepted.unsqueeze(1), drawn.law(moved).to(q.dtype), kept)
        cursor = torch.where(accepted, first[every, moved], torch.where(rejected, following[every, node], nodes))
    path, count, _ = path_of(shape, passing)
    return Decisions(path, count, inverse_cdf(p, coins.frontier))
