"""Losses of drafter training, term by term, with their gradients in closed form.

Masking selects rows, it never multiplies: what an unsupervised row holds changes nothing. p is the target's law, q the
drafter's. The teacher gets no gradient.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from oracle.errors import BadInput
from oracle.rollout import rollout_loss as rollout_loss
from oracle.rollout import total
from oracle.softmax import Law, cross_entropy, cross_entropy_gradient, finite_vector, log_softmax, logits, softmax
from oracle.tensors import finite, member, tensor, whole
from oracle.types import DistillCase, Eagle1Case, HassLossCase, LossResult, RegressionCase, Rows, TopKCase
from oracle.vocabulary import draft_to_target as draft_to_target

__all__ = [
    "draft_to_target",
    "eagle1_loss",
    "feature_regression",
    "hass_loss",
    "rollout_loss",
    "soft_cross_entropy",
    "topk_distillation",
]


def feature_regression(case: RegressionCase) -> LossResult:
    """Smooth-L1 between features, mean over supervised rows and d (LOSSES 2xx). Gradient: `predicted`.

    r²/2β where |r| < β, |r| − β/2 elsewhere. Raises `BadInput`.
    """
    member(case, RegressionCase)
    predicted = _features(case.predicted, ("R", "d"))
    target = tensor(case.target, "target", "f", predicted.shape)
    rows = _counted(case.supervise, "supervise", len(predicted))
    value, grad = _regression(predicted, target, rows, _beta(case.beta), ())
    return LossResult(value, {"predicted": grad})


def soft_cross_entropy(case: DistillCase) -> LossResult:
    """−Σ p log q over the whole vocabulary, mean over supervised rows (LOSSES 3xx). Gradient: `draft_logits`.

    Raises `BadInput`.
    """
    member(case, DistillCase)
    draft, target = _two(case.draft_logits, case.target_logits)
    rows = _counted(case.supervise, "supervise", len(draft))
    value, grad = _distilled(draft, target, rows, draft.shape[1])
    return LossResult(value, {"draft_logits": grad})


def topk_distillation(case: TopKCase) -> LossResult:
    """−Σ p log q over the k tokens of the largest target logits, p as it is (LOSSES 5xx). Gradient: `draft_logits`.

    Ties go to the lower id; k above V is V. Raises `BadInput`.
    """
    member(case, TopKCase)
    draft, target = _two(case.draft_logits, case.target_logits)
    rows = _counted(case.supervise, "supervise", len(draft))
    value, grad = _distilled(draft, target, rows, whole(case.k, "k", 1))
    return LossResult(value, {"draft_logits": grad})


def eagle1_loss(case: Eagle1Case) -> LossResult:
    """w_r · regression + w_c · cross-entropy through the frozen head (LOSSES 4xx). Gradient: `predicted`.

    parts: both terms before their weights. A zero weight drops its term. Raises `BadInput`.
    """
    member(case, Eagle1Case)
    predicted = _features(case.predicted, ("R", "d"))
    target = tensor(case.target, "target", "f", predicted.shape)
    head = _head(case.head, predicted.shape[1])
    rows = _counted(case.supervise, "supervise", len(predicted))
    weights = [
        finite(getattr(case, name), name, "a weight is a finite number")
        for name in ("regression_weight", "classification_weight")
    ]
    terms = [
        _regression(predicted, target, rows, _beta(case.beta), ()),
        _through_head(predicted, target, head, rows, len(head), ()),
    ]
    value, grad = _weighted(weights, terms)
    return LossResult(value, {"predicted": grad}, tuple(part for part, _ in terms))


def hass_loss(case: HassLossCase) -> LossResult:
    """The sum over steps of regression, cross-entropy and top-K, each weighted (LOSSES 6xx). Gradient: `predicted`.

    parts: the losses of the steps, None where a step supervises no row. Raises `BadInput`.
    """
    member(case, HassLossCase)
    predicted = _features(case.predicted, ("T", "R", "d"))
    steps, count, width = predicted.shape
    target = tensor(case.target, "target", "f", (count, width))
    head = _head(case.head, width)
    flags = tensor(case.supervise, "supervise", "b", (steps, count))
    beta, k = _beta(case.beta), whole(case.k, "k", 1)
    weights = [
        finite(getattr(case, name), name, "a weight is a finite number")
        for name in ("regression_weight", "classification_weight", "topk_weight")
    ]
    parts: list[float | None] = []
    grad = np.zeros(predicted.shape)
    for s in range(steps):
        rows = np.flatnonzero(flags[s]).tolist()
        terms = [
            _regression(predicted[s], target, rows, beta, (s,)),
            _through_head(predicted[s], target, head, rows, len(head), (s,)),
            _through_head(predicted[s], target, head, rows, k, (s,)),
        ]
        part, grad[s] = _weighted(weights, terms)
        parts.append(part)
    return LossResult(total(parts, [1.0] * steps), {"predicted": grad}, tuple(parts))


def _weighted(weights: Sequence[float], terms: Sequence[tuple[float | None, Rows]]) -> tuple[float | None, Rows]:
    value = total([part for part, _ in terms], weights)
    grad = np.zeros(terms[0][1].shape)
    for weight, (_, term) in zip(weights, terms):
        if weight != 0:
            grad = grad + weight * term
    return value, grad


def _regression(
    predicted: Rows, target: Rows, rows: Sequence[int], beta: float, step: tuple[int, ...]
) -> tuple[float | None, Rows]:
    grad = np.zeros(predicted.shape)
    if not rows:
        return None, grad
    elements = len(rows) * predicted.shape[1]
    sum_of_terms = 0.0
    for r in rows:
        here = finite_vector(predicted[r], "predicted", (*step, r))
        there = finite_vector(target[r], "target", (r,))
        with np.errstate(over="ignore"):
            residuals = (here - there).tolist()  # beyond float64 the loss is infinite
        for i, residual in enumerate(residuals):
            if abs(residual) < beta:
                sum_of_terms += 0.5 * residual * residual / beta
                grad[r, i] = residual / beta / elements
            else:
                sum_of_terms += abs(residual) - 0.5 * beta
                grad[r, i] = math.copysign(1.0, residual) / elements
    return sum_of_terms / elements, grad


def _distilled(draft: Rows, target: Rows, rows: Sequence[int], k: int) -> tuple[float | None, Rows]:
    """The mean over `rows` of the cross-entropy over the k tokens that the target finds most probable."""
    grad = np.zeros(draft.shape)
    if not rows:
        return None, grad
    value = 0.0
    for r in rows:
        p = top(target[r], softmax(logits(target[r], "target_logits", (r,)), "target_logits", (r,)), k)
        log_q = log_softmax(logits(draft[r], "draft_logits", (r,)))
        value += cross_entropy(p, log_q)
        grad[r] = cross_entropy_gradient(p, log_q) / len(rows)
    return value / len(rows), grad


def top(row: Rows, law: Law, k: int) -> Law:
    """The law on the k largest entries of `row`, lower ids first on ties, and 0 elsewhere."""
    kept = sorted(range(len(law)), key=lambda v: (-row[v], v))[:k]
    return [p if v in kept else 0.0 for v, p in enumerate(law)]


def _through_head(
    predicted: Rows, target: Rows, head: Rows, rows: Sequence[int], k: int, step: tuple[int, ...]
) -> tuple[float | None, Rows]:
    """`_distilled` of the head's logits, and its gradient with respect to the predicted features."""
    draft_logits, target_logits = np.zeros((len(predicted), len(head))), np.zeros((len(predicted), len(head)))
    for r in rows:
        draft_logits[r] = _headed(head, finite_vector(predicted[r], "predicted", (*step, r)), "predicted", (*step, r))
        target_logits[r] = _headed(head, finite_vector(target[r], "target", (r,)), "target", (r,))
    value, grad = _distilled(draft_logits, target_logits, rows, k)
    return value, grad @ head


def _headed(head: Rows, feature: Rows, field: str, index: tuple[int, ...]) -> Rows:
    """The logits of a feature; `BadInput` where they leave float64."""
    with np.errstate(over="ignore", invalid="ignore"):
        made = head @ feature
    if not np.all(np.isfinite(made)):
        raise BadInput(field, index, "a feature that counts has finite logits")
    return np.asarray(made)


def _two(draft: object, target: object) -> tuple[Rows, Rows]:
    first = tensor(draft, "draft_logits", "f", ("R", "V"))
    if first.shape[1] == 0:
        raise BadInput("draft_logits", (), "has at least one token", first.shape)
    return first, tensor(target, "target_logits", "f", first.shape)


def _features(values: object, shape: Sequence[int | str]) -> Rows:
    predicted = tensor(values, "predicted", "f", shape)
    if predicted.shape[-1] == 0:
        raise BadInput("predicted", (), "has at least one feature", predicted.shape)
    return predicted


def _head(values: object, width: int) -> Rows:
    head = tensor(values, "head", "f", ("V", width))
    if not len(head):
        raise BadInput("head", (), "has at least one token", head.shape)
    for v in range(len(head)):
        finite_vector(head[v], "head", (v,))
    return head


def _counted(supervise: object, field: str, rows: int) -> list[int]:
    return list(map(int, np.flatnonzero(tensor(supervise, field, "b", (rows,)))))


def _beta(value: object) -> float:
    beta = finite(value, "beta")
    if beta <= 0:
        raise BadInput("beta", (), "is above zero", beta)
    return beta
