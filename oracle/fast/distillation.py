"""The cross-entropy of a drafter against its target, row by row, with its gradient formed where the logits are.

Only rows that count are gathered, and logits are made of some of them at a time: those of the target become the measure
that the drafter learns, those of the drafter become the gradient, in place, and go back through the head before the
next rows come. Nothing is made twice, and what is held does not grow with the rows. A row of the target that several
rows of the drafter are held against (the steps of a rollout) is made once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from oracle.errors import BadInput
from oracle.fast import products
from oracle.fast.laws import Law, Measure, measure
from oracle.fast.products import Headed, accumulated, blocks, on_cpu

ROWS = 512
"""Rows whose logits are held at once on a CPU: a matrix product of fewer is slower."""
ROWS_ON_A_GPU = 1024


@dataclass(frozen=True)
class Task:
    """What is asked of a draft [T, R, ·]: what it is held against, and what its rows weigh.

    target: [M, ·]. supervise: bool [T, R]. paired: int64 [T, R], the row of the target; None = it is row t · R + r.
    weights: of each step; a zero weight drops its step. axes: what errors count rows over, T · R of them.
    denominator: "supervised", "mask" or "rows", of a step's mean, to which `epsilon` is added. required: a row whose
    target masks every token is bad input, and not one that does not count. rows: whose logits are held at once.
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
    rows: int | None = None
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
            for group in work.groups():
                work.run(*group)
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


Group = tuple[Tensor, Tensor, Tensor, list[int]]
"""Rows of the draft, ordered by the chunk of target rows that they are held against; the rows of the target, each once;
the place among them that each row of the draft is held against; where each chunk starts among the draft's rows, and
the last one ends."""


class _Work:
    """One forward pass."""

    def __init__(self, states: Tensor, weight: Tensor | None, task: Task, wanted: tuple[bool, bool]) -> None:
        self.task, self.weight, self.wanted = task, weight, wanted
        self.steps, self.count = task.supervise.shape
        self.states = states.reshape(-1, states.shape[-1])
        target = task.target
        used = (target.hidden, target.weight) if isinstance(target, Headed) else (target,)
        self.dtype = accumulated(states.dtype, *(tensor.dtype for tensor in used))
        self.rows = task.rows or (ROWS if on_cpu(states) else ROWS_ON_A_GPU)
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

    def _new(self, *shape: int) -> Tensor:
        return self.states.new_empty(shape, dtype=self.dtype)

    def _buffer(self, name: str, rows: int, width: int) -> Tensor:
        if name not in self.buffers:
            most = min(self.rows, max(len(self.index), 1))
            self.buffers[name] = self._new(most, width)
        return self.buffers[name][:rows]

    def groups(self) -> Iterator[Group]:
        """All rows at once, or those of each step, with what is owed at its end."""
        if not self.by_step:
            yield self._grouped(self.index)
            return
        assert self.head is not None and self.of_step is not None
        for s in range(self.steps):
            yield self._grouped(self.index[self.index // self.count == s])
            factor = self._factors(self.counts.view(self.steps, self.count))[s]
            self.head.addcmul_(self.of_step, factor.expand(1, 1))
            self.of_step.zero_()

    def _grouped(self, index: Tensor) -> Group:
        if self.task.paired is None:
            place = torch.arange(len(index), device=index.device)
            return index, index, place, [*range(0, len(index), self.rows), len(index)]
        unique, place = torch.unique(self.task.paired.reshape(-1)[index], return_inverse=True)
        chunk, order = (place // self.rows).sort(stable=True)
        starts = torch.arange(-(-len(unique) // self.rows) + 1, device=index.device)
        return index[order], unique, place[order], torch.searchsorted(chunk, starts).tolist()

    def run(self, index: Tensor, unique: Tensor, place: Tensor, bounds: list[int]) -> None:
        """Each chunk of target rows, and the rows of the draft that are held against them."""
        for chunk, (start, stop) in enumerate(pairwise(bounds)):
            first = chunk * self.rows
            learnt = self._measure(unique[first : first + self.rows])
            rows, local = index[start:stop], place[start:stop] - first
            if learnt.counts is not None:
                kept = learnt.counts[local].nonzero().squeeze(1)
                if self.task.required and self.task.validate and len(kept) < len(local):
                    (dropped,) = (~learnt.counts[local]).nonzero()[0].tolist()
                    place_of = self._place(rows[dropped])
                    raise BadInput(self.task.names[1], place_of, "a row that counts leaves some token unmasked")
                rows, local = rows[kept], local[kept]
            for begin in range(0, len(rows), self.rows):
                some = slice(begin, begin + self.rows)
                self._learn(rows[some], local[some], learnt)

    def _measure(self, rows: Tensor) -> Measure:
        target, task = self.task.target, self.task
        if isinstance(target, Headed):
            hidden = target.hidden.detach()[_consecutive(rows)].to(self.dtype)
            if task.validate:
                self._finite(hidden, rows, f"{task.names[1]}.hidden", task.paired is not None)
            width = len(target.weight)
            made = products.logits(hidden, target.weight.detach(), self._buffer("target", len(rows), width))
        else:
            made = self._buffer("target", len(rows), target.shape[-1])
            made.copy_(target.detach()[_consecutive(rows)])
            if task.validate:
                self._masked(made, rows, task.names[1], task.paired is not None)
        return measure(made, task.law, given=not isinstance(target, Headed))

    def _learn(self, rows: Tensor, local: Tensor, learnt: Measure) -> None:
        """Losses and gradients of rows of the draft."""
        count, width = len(rows), learnt.on.shape[-1]
        held = self.states[_consecutive(rows)].to(self.dtype)
        if self.weight is None:
            made = self._buffer("draft", count, width).copy_(held)
            if self.task.validate:
                self._masked(made, rows, self.task.names[0], False)
        else:
            if self.task.validate:
                self._finite(held, rows, f"{self.task.names[0]}.hidden", False)
            made = products.logits(held, self.weight, self._buffer("draft", count, width))
        losses = self._new(count)
        for block in blocks(made):
            which = _consecutive(local[block])
            on = learnt.on[which] if isinstance(which, slice) else learnt.on.index_select(0, which)
            mass = learnt.mass[which]
            lost = _cross_entropy(made[block], on, mass, self.weight is None, any(self.wanted))
            if learnt.negentropy is not None:
                lost += learnt.negentropy[which].squeeze(1)
            losses[block] = lost
        if self.task.validate and self.weight is not None and not bool(losses.isfinite().all()):
            (worst,) = (~losses.isfinite()).nonzero()[0].tolist()
            rule = "a feature that counts has finite logits"
            raise BadInput(f"{self.task.names[0]}.hidden", self._place(rows[worst]), rule)
        self.losses.index_copy_(0, rows, losses)
        self.counts.index_fill_(0, rows, True)
        if self.slope is not None:
            if self.weight is not None:
                back = products.through(made, self.weight, self._buffer("back", *held.shape))
            self.slope.view(self.states.shape)[_consecutive(rows)] = made if self.weight is None else back
        if self.of_step is not None:
            weighed = held if self.known is None else held * self.known[rows // self.count].unsqueeze(1)
            self.of_step.addmm_(made.t(), weighed)

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
        if numbers.numel() and not all(math.isfinite(end) for end in torch.stack(torch.aminmax(numbers)).tolist()):
            self._refuse(~numbers.isfinite(), numbers, rows, name, own, "a number that counts is finite")

    def _masked(self, numbers: Tensor, rows: Tensor, name: str, own: bool) -> None:
        if numbers.numel() and not float(numbers.amax()) < math.inf:
            self._refuse(~(numbers < math.inf), numbers, rows, name, own, "a logit that counts is finite or −inf")

    def _refuse(self, wrong: Tensor, numbers: Tensor, rows: Tensor, name: str, own: bool, rule: str) -> None:
        i, v = wrong.nonzero()[0].tolist()
        place = (int(rows[i]),) if own else self._place(rows[i])
        raise BadInput(name, (*place, v), rule, float(numbers[i, v]))


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
