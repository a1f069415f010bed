"""The cross-entropy of a drafter against its target, row by row, with its gradient formed where the logits are.

Only rows that count are gathered, and logits are made of some of them at a time: those of the target become the measure
that the drafter learns, those of the drafter become the gradient, in place, and go back through the head before the
next rows come. What is held does not grow with the rows. A row of the target that several rows of the drafter are held
against (the steps of a rollout) is made for all of them at once.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from oracle.errors import BadInput
from oracle.fast import products
from oracle.fast.laws import Law, counted, measure
from oracle.fast.products import Headed, accumulated, blocks, on_cpu

ROWS = 512
"""Half the rows, of target and draft together, whose logits are held at once on a CPU: products of fewer are slower."""
ROWS_ON_A_GPU = 1024


@dataclass(frozen=True)
class Task:
    """What is asked of a draft [T, R, ·]: what it is held against, and what its rows weigh.

    target: [M, ·]. supervise: bool [T, R]. paired: int64 [T, R], the row of the target; None = it is row t · R + r.
    weights: of each step; a zero weight drops its step. axes: what errors count rows over, T · R of them.
    denominator: "supervised", "mask" or "rows", of a step's mean, to which `epsilon` is added. required: a row whose
    target masks every token is bad input, and not one that does not count.
    names: of draft and target, for errors.
    """

    target: Tensor | Headed
    supervise: Tensor
    weights: Sequence[float]
    axes: tuple[int, ...]
    law: Law = field(default_factory=Law)
    paired: Tensor | None = None
    denominator: str = "supervised"
    epsilon: float = 0.0
    required: bool = False
    validate: bool = True
    names: tuple[str, str] = ("draft_logits", "target_logits")

    @property
    def gates(self) -> bool:
        """Whether a supervised row may not count."""
        return not isinstance(self.target, Headed) or (self.law.gate and self.law.ids is not None)


class Distilled(NamedTuple):
    """The loss, differentiable; the losses of the steps before their weight [T], and the rows that count [T]."""

    value: Tensor
    parts: Tensor
    counted: Tensor


def distil(draft: Tensor | Headed, task: Task) -> Distilled:
    """Σ of the steps' weights times Σ over counted rows of −Σ a log q, over the step's denominator."""
    if isinstance(draft, Headed):
        states, weight = draft.hidden, draft.weight
    else:
        states, weight = draft, None
    graph = torch.is_grad_enabled()
    wanted = graph and states.requires_grad, graph and weight is not None and weight.requires_grad
    value, parts, counted = _Distil.apply(states, weight, task, wanted)  # type: ignore[no-untyped-call]
    return Distilled(value, parts, counted)


class _Distil(torch.autograd.Function):
    """Saves the gradient of every row, before its step's factor, and the finished one of a head that is trained."""

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor | None, task: Task, wanted: tuple[bool, bool]
    ) -> tuple[Tensor, Tensor, Tensor]:
        with torch.autocast(states.device.type, enabled=False):
            work = _Work(states.detach(), None if weight is None else weight.detach(), task, wanted)
            work.run()
            value, parts, counted = work.finish()
        ctx.drops = 0.0 in task.weights
        ctx.shape, ctx.dtypes = states.shape, (states.dtype, None if weight is None else weight.dtype)
        ctx.save_for_backward(work.slope, work.factors, work.head)
        ctx.mark_non_differentiable(parts, counted)
        return value, parts, counted

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor, *unused: Tensor) -> tuple[Tensor | None, ...]:
        slope, factors, head = ctx.saved_tensors
        grad = None
        if slope is not None:
            grad = slope * (factors * upstream).view(-1, 1, 1)
            if ctx.drops:
                grad.masked_fill_(factors.view(-1, 1, 1) == 0, 0.0)  # 0 · inf is 0
            grad = grad.to(ctx.dtypes[0]).view(ctx.shape)
        return grad, None if head is None else (head * upstream).to(ctx.dtypes[1]), None, None


class Chunk(NamedTuple):
    """Rows of the draft, the rows of the target that they are held against, each once and in order, and the place among
    these of each row of the draft, in order."""

    rows: Tensor
    theirs: Tensor
    place: Tensor


class _Work:
    """One forward pass."""

    def __init__(self, states: Tensor, weight: Tensor | None, task: Task, wanted: tuple[bool, bool]) -> None:
        self.task, self.weight, self.wanted = task, weight, wanted
        self.steps, self.count = task.supervise.shape
        self.states = states.reshape(-1, states.shape[-1])
        target = task.target
        used = (target.hidden, target.weight) if isinstance(target, Headed) else (target,)
        self.dtype = accumulated(states.dtype, *(tensor.dtype for tensor in used))
        self.rows = ROWS if on_cpu(states) else ROWS_ON_A_GPU
        self.index = task.supervise.reshape(-1).nonzero().squeeze(1)
        self.losses = self._new(self.steps * self.count).zero_()
        self.counts = torch.zeros(self.steps * self.count, dtype=torch.bool, device=states.device)
        # the sum over a head's rows needs their weights: known beforehand, or at the end of a step
        self.by_step = wanted[1] and task.gates and task.denominator == "supervised" and self.steps > 1
        self.known = None
        if wanted[1] and not (task.gates and task.denominator == "supervised"):
            self.known = self._factors(task.supervise)
        self.slope = self._new(*states.shape).zero_() if wanted[0] else None
        self.factors = self._new(0)
        self.head = None
        if weight is not None and wanted[1]:
            self.head = torch.zeros_like(weight, dtype=self.dtype, memory_format=torch.contiguous_format)
        self.of_step = torch.zeros_like(self.head) if self.head is not None and self.by_step else self.head
        self.buffers: dict[str, Tensor] = {}
        # one product makes the logits of both, where both have one head and no row's turns on the other's
        self.joint = isinstance(target, Headed) and not task.gates and _one(weight, target.weight)

    def _new(self, *shape: int) -> Tensor:
        return self.states.new_empty(shape, dtype=self.dtype)

    def _buffer(self, name: str, rows: int, width: int) -> Tensor:
        if name not in self.buffers or len(self.buffers[name]) < rows:
            self.buffers[name] = self._new(rows, width)
        return self.buffers[name][:rows]

    def run(self) -> None:
        """All rows, or those of each step with what is owed at its end."""
        if not self.by_step:
            self._run(self.index)
            return
        assert self.head is not None and self.of_step is not None
        for s in range(self.steps):
            self._run(self.index[self.index // self.count == s])
            factor = self._factors(self.counts.view(self.steps, self.count))[s]
            self.head.addcmul_(self.of_step, factor.expand(1, 1))
            self.of_step.zero_()

    def _run(self, index: Tensor) -> None:
        for chunk in self._chunks(index):
            if self.joint:
                made = self._logits(torch.cat((self._target(chunk.theirs), self._draft(chunk.rows))), "both")
                self._learn(chunk, made[: len(chunk.theirs)], made[len(chunk.theirs) :])
                continue
            theirs = self._target(chunk.theirs)
            theirs = self._logits(theirs, "target") if isinstance(self.task.target, Headed) else theirs
            kept = self._counted(chunk, theirs)
            if len(kept.rows):
                draft = self._draft(kept.rows)
                self._learn(kept, theirs, draft if self.weight is None else self._logits(draft, "draft"))

    def _chunks(self, index: Tensor) -> Iterator[Chunk]:
        """So many rows of both that their logits are held at once."""
        theirs, place = index, torch.arange(len(index), device=index.device)
        if self.task.paired is not None:
            theirs, place = torch.unique(self.task.paired.reshape(-1)[index], return_inverse=True)
            place, order = place.sort(stable=True)
            index = index[order]
        reach = (place + torch.arange(len(index), device=index.device)).tolist()  # rows of both up to here
        start = 0
        while start < len(index):
            stop = bisect_right(reach, reach[start] + 2 * self.rows - 2)
            first, last = reach[start] - start, reach[stop - 1] - (stop - 1)
            yield Chunk(index[start:stop], theirs[first : last + 1], place[start:stop] - first)
            start = stop

    def _target(self, rows: Tensor) -> Tensor:
        """Hidden states of the target, or logits."""
        target, name, own = self.task.target, self.task.names[1], self.task.paired is not None
        if isinstance(target, Headed):
            held = target.hidden.detach()[_consecutive(rows)].to(self.dtype)
            self._finite(held, rows, f"{name}.hidden", own)
            return held
        made = self._buffer("target", len(rows), target.shape[-1]).copy_(target.detach()[_consecutive(rows)])
        self._masked(made, rows, name, own)
        return made

    def _draft(self, rows: Tensor) -> Tensor:
        """Hidden states of the draft, or logits."""
        held, name = self.states[_consecutive(rows)], self.task.names[0]
        if self.weight is not None:
            held = held.to(self.dtype)
            self._finite(held, rows, f"{name}.hidden", False)
            return held
        made = self._buffer("draft", *held.shape).copy_(held)
        self._masked(made, rows, name, False)
        return made

    def _logits(self, hidden: Tensor, name: str) -> Tensor:
        target = self.task.target
        weight = target.weight.detach() if name == "target" and isinstance(target, Headed) else self.weight
        assert weight is not None
        return products.logits(hidden, weight, self._buffer(name, len(hidden), len(weight)))

    def _counted(self, chunk: Chunk, theirs: Tensor) -> Chunk:
        """The rows of the draft that count."""
        counts = counted(theirs, self.task.law, not isinstance(self.task.target, Headed))
        if counts is None:
            return chunk
        counts = counts[chunk.place]
        kept = counts.nonzero().squeeze(1)
        if self.task.required and self.task.validate and len(kept) < len(counts):
            (dropped,) = (~counts).nonzero()[0].tolist()
            rule = "a row that counts leaves some token unmasked"
            raise BadInput(self.task.names[1], self._place(chunk.rows[dropped]), rule)
        return Chunk(chunk.rows[kept], chunk.theirs, chunk.place[kept])

    def _learn(self, chunk: Chunk, theirs: Tensor, draft: Tensor) -> None:
        """Losses and gradients of rows of the draft; logits are overwritten."""
        rows = chunk.rows
        losses = self._held_against(chunk.place, theirs, draft)
        if self.task.validate and self.weight is not None and not bool(losses.isfinite().all()):
            (worst,) = (~losses.isfinite()).nonzero()[0].tolist()
            rule = "a feature that counts has finite logits"
            raise BadInput(f"{self.task.names[0]}.hidden", self._place(rows[worst]), rule)
        self.losses.index_copy_(0, rows, losses)
        self.counts.index_fill_(0, rows, True)
        if self.slope is not None:
            back = draft
            if self.weight is not None:
                back = products.through(draft, self.weight, self._buffer("back", len(rows), self.states.shape[-1]))
            self.slope.view(self.states.shape)[_consecutive(rows)] = back
        if self.of_step is not None:
            held = self.states[_consecutive(rows)].to(self.dtype)
            weighed = held if self.known is None else held * self.known[rows // self.count].unsqueeze(1)
            self.of_step.addmm_(draft.t(), weighed)

    def _held_against(self, place: Tensor, theirs: Tensor, draft: Tensor) -> Tensor:
        """Losses of the draft's rows, whose logits become their gradients, a few rows at a time in a core's cache."""
        losses = self._new(len(draft))
        given = not isinstance(self.task.target, Headed), self.weight is None
        parts = list(blocks(theirs))
        starts = torch.tensor([part.start for part in parts[1:]], dtype=torch.int64, device=place.device)
        edges = [0, *(torch.searchsorted(place, starts).tolist() if len(parts) > 1 else ()), len(draft)]
        for part, (first, last) in zip(parts, pairwise(edges)):
            if first == last:
                continue
            learnt = measure(theirs[part], self.task.law, given[0])
            for block in blocks(draft[first:last]):
                some = slice(first + block.start, first + block.stop)
                which = _consecutive(place[some] - part.start)
                lost = _cross_entropy(draft[some], learnt.on[which], learnt.mass[which], given[1], any(self.wanted))
                if learnt.negentropy is not None:
                    lost += learnt.negentropy[which].squeeze(1)
                losses[some] = lost
        return losses

    def _factors(self, counts: Tensor) -> Tensor:
        """What a row of each step is multiplied by, [T]: its weight over its denominator; 0 where no row counts."""
        rows = counts.sum(1)
        return torch.where(rows > 0, self._weights() / self._divisor(rows), 0.0)

    def _divisor(self, rows: Tensor) -> Tensor:
        """The denominators of the steps, in which so many rows count."""
        over = {"supervised": rows, "mask": self.task.supervise.sum(1), "rows": torch.full_like(rows, self.count)}
        return over[self.task.denominator].to(self.dtype) + self.task.epsilon

    def _weights(self) -> Tensor:
        return torch.tensor(self.task.weights, dtype=self.dtype).to(self.states.device, non_blocking=True)

    def finish(self) -> tuple[Tensor, Tensor, Tensor]:
        """The loss, its parts, and how many rows count in each; the factors of the steps' gradients."""
        counts = self.counts.view(self.steps, self.count)
        counted, weights = counts.sum(1), self._weights()
        sums = self.losses.view(self.steps, self.count).sum(1)
        parts = torch.where(counted > 0, sums / self._divisor(counted), 0.0)
        value = torch.where(weights != 0, parts * weights, 0.0).sum()
        self.factors = self._factors(counts)
        if self.head is not None and self.known is None and not self.by_step:
            self.head.mul_(self.factors[0] if self.steps else 0.0)
        return value, parts, counted

    # ---- errors

    def _place(self, row: Tensor | int) -> tuple[int, ...]:
        return tuple(int(i) for i in torch.unravel_index(torch.as_tensor(int(row)), self.task.axes))

    def _finite(self, numbers: Tensor, rows: Tensor, name: str, own: bool) -> None:
        if (
            self.task.validate
            and numbers.numel()
            and not all(math.isfinite(end) for end in torch.stack(torch.aminmax(numbers)).tolist())
        ):
            self._refuse(~numbers.isfinite(), numbers, rows, name, own, "a number that counts is finite")

    def _masked(self, numbers: Tensor, rows: Tensor, name: str, own: bool) -> None:
        if self.task.validate and numbers.numel() and not float(numbers.amax()) < math.inf:
            self._refuse(~(numbers < math.inf), numbers, rows, name, own, "a logit that counts is finite or −inf")

    def _refuse(self, wrong: Tensor, numbers: Tensor, rows: Tensor, name: str, own: bool, rule: str) -> None:
        i, v = wrong.nonzero()[0].tolist()
        place = (int(rows[i]),) if own else self._place(rows[i])
        raise BadInput(name, (*place, v), rule, float(numbers[i, v]))


def _one(ours: Tensor | None, theirs: Tensor) -> bool:
    """Whether two heads are the same memory."""
    if ours is None or (ours.dtype, ours.shape, ours.stride()) != (theirs.dtype, theirs.shape, theirs.stride()):
        return False
    return ours.data_ptr() == theirs.data_ptr()


def _consecutive(rows: Tensor) -> Tensor | slice:
    """Rows as a slice, which is read in place, where they are one and nobody waits to learn it."""
    if on_cpu(rows):
        first, *others = rows.tolist()
        if others == list(range(first + 1, first + len(rows))):
            return slice(first, first + len(rows))
    return rows


def _cross_entropy(draft: Tensor, on: Tensor, mass: Tensor, given: bool, slope: bool) -> Tensor:
    """−Σ a log q of each row of draft logits [b, Vd], which become (Σ a) q − a where the slope is wanted.

    given: some may be −inf, and 0 · (−inf) is 0.
    """
    peak = draft.amax(-1, keepdim=True)
    if given:
        peak = peak.masked_fill(peak == -math.inf, 0.0)
    draft.sub_(peak)
    crossed = (on * (draft.masked_fill(on == 0, 0.0) if given else draft)).sum(-1)
    norm = draft.exp_().sum(-1, keepdim=True)
    if given:
        norm = norm.masked_fill(norm == 0, 1.0)  # of a row of −inf alone, whose loss is told by `crossed`
    if slope:
        draft.mul_(mass / norm).sub_(on)
    return torch.sub((mass * norm.log()).squeeze(-1), crossed)
