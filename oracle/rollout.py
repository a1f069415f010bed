"""The loss of a rollout: soft cross-entropy on the draft vocabulary, step by step (EAGLE-3 §3.2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oracle.errors import BadInput
from oracle.softmax import Law, cross_entropy, cross_entropy_gradient, log_softmax, log_sum_exp, logits
from oracle.tensors import finite, member, one_of, tensor
from oracle.types import (
    DENOMINATORS,
    DIVERGENCES,
    GATES,
    REDUCTIONS,
    RESTRICTED_TARGETS,
    Ids,
    LossResult,
    RolloutLossCase,
)
from oracle.validation import as_array
from oracle.vocabulary import distinct

DECAY = 0.8
"""The released weight of step s is 0.8**s (SafeAILab/EAGLE, eagle/traineagle3/main.py)."""


def rollout_loss(case: RolloutLossCase) -> LossResult:
    """Σ ω_s · (Σ over counted rows of the divergence) / (denominator of the step + ε) (LOSSES 7xx).

    Gradient: `draft_logits` [T, R, Vd]. parts: the losses of the steps before their weight, None where no row counts.
    A row counts where it is supervised, passes the gate and has a target law on the draft vocabulary. Raises
    `BadInput`.
    """
    view = _View(case)
    parts: list[float | None] = []
    grad = np.zeros(view.draft.shape)
    for s in range(view.steps):
        counted = [row for r in range(view.rows) if (row := view.row(s, r)) is not None]
        if not counted:
            parts.append(None)
            continue
        rows = {"supervised": len(counted), "mask": int(view.supervise[s].sum()), "rows": view.rows}[view.denominator]
        denominator = rows + view.epsilon
        value = 0.0
        for row in counted:
            value += cross_entropy(row.p, row.log_q)
            if view.divergence == "kl":
                value -= cross_entropy(row.p, [math.log(p) if p > 0 else -math.inf for p in row.p])
            if view.weights[s] != 0:
                grad[s, row.index] = view.weights[s] * cross_entropy_gradient(row.p, row.log_q) / denominator
        parts.append(value / denominator)
    sum_of_steps = total(parts, view.weights)
    if view.reduction == "mean" and sum_of_steps is not None:
        sum_of_steps, grad = sum_of_steps / view.steps, grad / view.steps
    return LossResult(sum_of_steps, {"draft_logits": grad}, tuple(parts))


@dataclass(frozen=True)
class _Row:
    """A row that counts: its index, the target's law on the draft vocabulary, and log q."""

    index: int
    p: Law
    log_q: Law


class _View:
    """A `RolloutLossCase`, its structure validated whole, its rows as they are read."""

    def __init__(self, case: RolloutLossCase) -> None:
        member(case, RolloutLossCase)
        self.draft = tensor(case.draft_logits, "draft_logits", "f", ("T", "R", "Vd"))
        self.steps, self.rows, width = self.draft.shape
        self._target = tensor(case.target_logits, "target_logits", "f", (self.steps, self.rows, "V"))
        self.supervise = tensor(case.supervise, "supervise", "b", (self.steps, self.rows))
        vocabulary = self._target.shape[2]
        if width == 0:
            raise BadInput("draft_logits", (), "has at least one token", self.draft.shape)
        if case.draft_to_target is None:
            if width != vocabulary:
                rule = f"without a map the draft vocabulary is the target's, of {vocabulary} tokens"
                raise BadInput("draft_logits", (), rule, self.draft.shape)
            self._ids: Ids = np.arange(width)
        else:
            ids = tensor(case.draft_to_target, "draft_to_target", "iu", (width,))
            self._ids = distinct(ids.tolist(), "draft_to_target", vocabulary)
        self.weights = self._weights(case)
        self.denominator = one_of(case.denominator, "denominator", DENOMINATORS)
        self._restricted = one_of(case.restricted_target, "restricted_target", RESTRICTED_TARGETS)
        self._gate = one_of(case.gate, "gate", GATES)
        self.divergence = one_of(case.divergence, "divergence", DIVERGENCES)
        self.reduction = one_of(case.reduction, "reduction", REDUCTIONS)
        self.epsilon = finite(case.denominator_epsilon, "denominator_epsilon")
        if self.epsilon < 0:
            raise BadInput("denominator_epsilon", (), "is at least zero", self.epsilon)

    def _weights(self, case: RolloutLossCase) -> list[float]:
        if case.step_weights is None:
            return [DECAY**s for s in range(self.steps)]
        given = as_array(case.step_weights, "step_weights")
        if given.shape != (self.steps,):
            raise BadInput("step_weights", (), f"there is one weight for each of the {self.steps} steps", given.shape)
        return [finite(w, "step_weights", "a weight is a finite number", (s,)) for s, w in enumerate(given)]

    def row(self, s: int, r: int) -> _Row | None:
        """Row r of step s, or None where it does not count."""
        if not self.supervise[s, r]:
            return None
        full = logits(self._target[s, r], "target_logits", (s, r))
        if self._gate == "argmax" and int(np.argmax(full)) not in self._ids.tolist():
            return None
        restricted = full[self._ids]
        if not np.any(restricted > -math.inf):
            return None
        norm = log_sum_exp((restricted if self._restricted == "renormalised" else full).tolist())
        p = [math.exp(x - norm) for x in restricted.tolist()]
        return _Row(r, p, log_softmax(logits(self.draft[s, r], "draft_logits", (s, r))))


def total(parts: Sequence[float | None], weights: Sequence[float]) -> float | None:
    """The weighted sum of the parts that count; a zero weight drops its part. None where none counts."""
    counted = [(w, part) for w, part in zip(weights, parts) if part is not None]
    return sum((w * part for w, part in counted if w != 0), 0.0) if counted else None
