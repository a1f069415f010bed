"""The oracle's gradients by another road: `torch.autograd` in float64, over losses written down anew.

A row that does not count does not exist here, nor does a token that the drafter masks: rows are taken out before
anything is computed, tokens before the softmax. Tolerances count roundings. γ(n) = nu/(1 − nu), u = 2⁻⁵³, bounds n
of them, and each of the two roads is off by no more than that:

- log q over V logits of size at most S carries γ(V + 8 + 4S) as an absolute error: V for the sum, 8 for exp, log and
  subtractions, 4S since the logits are shifted by their maximum; a logit made by a head adds twice γ(d + 2)·Σ|h||x|.
  p carries the same as a relative error, on a draft vocabulary twice that, since it may be divided by its mass;
- a row's loss is Σ p |log q| ≤ L, the largest |log q|, so it is off by that error times 1 + L, and a gradient of a
  logit, Z·q − p, by that error times 2;
- a mean of n rows adds n roundings, a sum over steps one a step.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from oracle import losses
from oracle.training import BETAS, RATE, AdamW
from oracle.types import (
    DENOMINATORS,
    DIVERGENCES,
    GATES,
    REDUCTIONS,
    RESTRICTED_TARGETS,
    DistillCase,
    Eagle1Case,
    Flags,
    HassLossCase,
    LossResult,
    RegressionCase,
    RolloutLossCase,
    Rows,
    TopKCase,
)

U = 2.0**-53
SEEDS = range(40)


@dataclass
class Term:
    """A term of a loss: None where no row counts; how far its value and an entry of its gradient may be off."""

    value: Tensor | None
    off: float = 0.0
    slope_off: float = 0.0


def gamma(roundings: float) -> float:
    return roundings * U / (1 - roundings * U)


# ---- the losses


def regression(predicted: Tensor, target: Tensor, counted: Flags, beta: float) -> Term:
    rows = np.flatnonzero(counted).tolist()
    if not rows:
        return Term(None)
    value = functional.smooth_l1_loss(predicted[rows], target[rows], beta=beta)
    elements = predicted[rows].numel()
    return Term(value, 2 * gamma(elements + 8) * float(value.detach()), 2 * gamma(8) / elements)


def in_top(row: Tensor, k: int) -> Tensor:
    """Whether fewer than k tokens are ahead of a token: those of larger logits, and the lower ids of equal ones."""
    larger = (row[None, :] > row[:, None]).sum(dim=1)
    earlier = (row[None, :] == row[:, None]).tril(-1).sum(dim=1)
    return larger + earlier < k


def divergence(p: Tensor, draft: Tensor, kl: bool = False) -> Tensor:
    """−Σ p log q of one row, less the entropy of p where `kl`; masked draft tokens are taken out first."""
    held = draft > -math.inf
    if (p[~held] > 0).any():
        return torch.tensor(math.inf, dtype=torch.float64)
    log_q = functional.log_softmax(draft[held], dim=0)
    if kl:
        return functional.kl_div(log_q, p[held], reduction="sum")
    return -torch.dot(p[held], log_q)


def row_error(target: Tensor, draft: Tensor, of_logits: float = 0.0) -> tuple[float, float]:
    """How far log q is off in these rows, and the largest |log q| of a token that the drafter does not mask."""
    seen = [x[x > -math.inf] for x in (target.detach(), draft.detach())]
    size = max((float(x.abs().max()) for x in seen if len(x)), default=0.0)
    log_q = functional.log_softmax(draft.detach(), dim=-1)
    held = log_q[log_q > -math.inf]
    return gamma(target.shape[-1] + 8 + 4 * size) + 2 * of_logits, float(held.abs().max()) if len(held) else 0.0


def distillation(draft: Tensor, target: Tensor, counted: Flags, k: int | None = None, of_logits: float = 0.0) -> Term:
    rows = np.flatnonzero(counted).tolist()
    if not rows:
        return Term(None)
    found = []
    for r in rows:
        p = functional.softmax(target[r], dim=0)
        found.append(divergence(p if k is None else p * in_top(target[r], k), draft[r]))
    error, largest = row_error(target[rows], draft[rows], of_logits)
    off = 2 * (error + gamma(len(rows) + draft.shape[1])) * (1 + largest)
    return Term(torch.stack(found).mean(), off, 4 * (error + gamma(4)) / len(rows))


def through_head(predicted: Tensor, target: Tensor, head: Tensor, counted: Flags, k: int | None = None) -> Term:
    rows = np.flatnonzero(counted).tolist()
    if not rows:
        return Term(None)
    features = torch.cat([predicted[rows], target[rows]]).detach()
    of_logits = gamma(head.shape[1] + 2) * float((features.abs() @ head.abs().T).max())
    everything = np.ones(len(rows), dtype=bool)
    term = distillation(predicted[rows] @ head.T, target[rows] @ head.T, everything, k, of_logits)
    # Σ over tokens of |h| times what a logit's slope is off, and the sum's own roundings of slopes of at most 1
    columns = float(head.abs().sum(dim=0).max())
    return replace(term, slope_off=(term.slope_off + 2 * gamma(len(head)) / len(rows)) * columns)


def weighted(terms: Sequence[Term], weights: Sequence[float]) -> Term:
    counted = [(term, weight) for term, weight in zip(terms, weights) if term.value is not None]
    if not counted:
        return Term(None)
    used = [(term, weight) for term, weight in counted if weight != 0]
    zero = torch.zeros((), dtype=torch.float64)
    value = sum((weight * term.value for term, weight in used if term.value is not None), zero)
    size = sum(abs(weight * float(term.value.detach())) for term, weight in used if term.value is not None)
    rounding = 2 * gamma(len(terms) + 2) * size if math.isfinite(size) else 0.0
    slope = 2 * gamma(len(terms) + 2) * sum(abs(weight) for _, weight in used)
    return Term(
        value,
        sum(abs(weight) * term.off for term, weight in used) + rounding,
        sum(abs(weight) * term.slope_off for term, weight in used) + slope,
    )


def rollout_steps(case: RolloutLossCase, draft: Tensor) -> list[Term]:
    vocabulary = case.target_logits.shape[2]
    ids = list(range(vocabulary)) if case.draft_to_target is None else case.draft_to_target.tolist()
    found = []
    for s in range(len(draft)):
        rows, kept = [], []
        for r in np.flatnonzero(case.supervise[s]).tolist():
            full = torch.tensor(case.target_logits[s, r])
            best = min(v for v in range(vocabulary) if full[v] == full.max())
            if (case.gate == "argmax" and best not in ids) or not (full[ids] > -math.inf).any():
                continue
            raw = case.restricted_target == "raw"
            p = functional.softmax(full, dim=0)[ids] if raw else functional.softmax(full[ids], dim=0)
            rows.append(divergence(p, draft[s, r], case.divergence == "kl"))
            kept.append((full, draft[s, r]))
        if not rows:
            found.append(Term(None))
            continue
        errors = [row_error(full, here) for full, here in kept]
        error, largest = max(2 * e for e, _ in errors), max(size for _, size in errors)
        # the entropy of p is no larger than log V, and as far off
        largest += math.log(vocabulary) + 1 if case.divergence == "kl" else 0.0
        count = {"supervised": len(rows), "mask": int(case.supervise[s].sum()), "rows": draft.shape[1]}
        over = count[case.denominator] + case.denominator_epsilon
        share = len(rows) / over
        off = 2 * (error + gamma(len(rows) + draft.shape[2] + 4)) * (1 + largest) * share
        found.append(Term(torch.stack(rows).sum() / over, off, 4 * (error + gamma(6)) / over))
    return found


# ---- comparing


def compare(found: LossResult, name: str, trained: Tensor, right: Term, parts: Sequence[Term] = ()) -> None:
    """The oracle's value, parts and gradient beside those of autograd."""
    assert len(found.parts) == len(parts)
    for value, term in [(found.value, right), *zip(found.parts, parts)]:
        if value is None or term.value is None:
            assert value is None and term.value is None
        elif not math.isfinite(value):
            assert value == float(term.value.detach())
        else:
            assert abs(value - float(term.value.detach())) <= term.off
    assert set(found.grad) == {name} and found.grad[name].shape == tuple(trained.shape)
    if found.value is not None and not math.isfinite(found.value):
        return  # the gradient of an infinite loss is not specified
    expected = torch.zeros_like(trained)
    if right.value is not None and right.value.requires_grad:
        (expected,) = torch.autograd.grad(right.value, trained)
    assert np.abs(found.grad[name] - expected.numpy()).max(initial=0.0) <= right.slope_off


def leaf(values: Rows) -> Tensor:
    return torch.tensor(values, requires_grad=True)


# ---- cases


class Draws:
    """Numbers of a seed. Logits lie on a coarse grid, so that there are ties, and some of them are masked."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def size(self, least: int, most: int) -> int:
        return int(self.rng.integers(least, most + 1))

    def flags(self, *shape: int) -> Flags:
        return self.rng.random(shape) < 0.6

    def features(self, *shape: int) -> Rows:
        """Numbers with ties at 0.5 and 1.5, so that some residuals are 1 exactly."""
        found = self.rng.normal(size=shape) * 2
        tied = self.flags(*shape)
        found[tied] = self.rng.choice([0.5, 1.5], shape)[tied]
        return found

    def logits(self, *shape: int) -> Rows:
        found: Rows = self.rng.integers(-4, 5, shape) / 2.0 * self.rng.choice([1.0, 30.0])
        found[self.rng.random(shape) < 0.2] = -np.inf
        return found

    def pair(self, *shape: int) -> tuple[Rows, Rows]:
        """Draft and target logits: what the drafter masks the target mostly masks, too; no target row is masked."""
        draft, target = self.logits(*shape), self.logits(*shape)
        target[np.isneginf(draft) & (self.rng.random(shape) < 0.9)] = -np.inf
        nothing = np.isneginf(target).all(axis=-1)
        target[nothing, 0], draft[nothing, 0] = 0.5, 1.5
        return draft, target


def poisoned(rows: Rows, counted: Flags) -> Rows:
    """The rows, with what nobody may read where they do not count."""
    found = rows.copy()
    found[~counted] = np.nan
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_feature_regression(seed: int) -> None:
    draw = Draws(seed)
    shape, beta = (draw.size(0, 5), draw.size(1, 4)), (0.5, 1.0, 2.0)[seed % 3]
    counted = draw.flags(shape[0])
    predicted, target = (poisoned(draw.features(*shape), counted) for _ in range(2))
    trained = leaf(predicted)
    right = regression(trained, torch.tensor(target), counted, beta)
    compare(losses.feature_regression(RegressionCase(predicted, target, counted, beta)), "predicted", trained, right)


@pytest.mark.parametrize("seed", SEEDS)
def test_soft_cross_entropy_and_top_k(seed: int) -> None:
    draw = Draws(seed)
    shape = (draw.size(0, 5), draw.size(1, 7))
    counted = draw.flags(shape[0])
    draft, target = (poisoned(rows, counted) for rows in draw.pair(*shape))
    trained = leaf(draft)
    right = distillation(trained, torch.tensor(target), counted)
    compare(losses.soft_cross_entropy(DistillCase(draft, target, counted)), "draft_logits", trained, right)
    for k in range(1, shape[1] + 2):
        right = distillation(trained, torch.tensor(target), counted, k)
        compare(losses.topk_distillation(TopKCase(draft, target, counted, k)), "draft_logits", trained, right)


@pytest.mark.parametrize("seed", SEEDS)
def test_eagle1(seed: int) -> None:
    draw = Draws(seed)
    rows, width, vocabulary = draw.size(0, 5), draw.size(1, 4), draw.size(1, 6)
    counted, head = draw.flags(rows), draw.features(vocabulary, width)
    predicted, target = (poisoned(draw.features(rows, width), counted) for _ in range(2))
    weights = (float(draw.rng.choice([1.0, 0.5, 0.0])), float(draw.rng.choice([0.1, 2.0, 0.0])))
    trained, fixed = leaf(predicted), (torch.tensor(target), torch.tensor(head))
    terms = [regression(trained, fixed[0], counted, 2.0), through_head(trained, *fixed, counted)]
    found = losses.eagle1_loss(Eagle1Case(predicted, target, head, counted, 2.0, *weights))
    compare(found, "predicted", trained, weighted(terms, weights), terms)


@pytest.mark.parametrize("seed", SEEDS)
def test_hass(seed: int) -> None:
    draw = Draws(seed)
    steps, rows, width, vocabulary = draw.size(1, 3), draw.size(0, 4), draw.size(1, 4), draw.size(1, 6)
    counted, head, target = draw.flags(steps, rows), draw.features(vocabulary, width), draw.features(rows, width)
    predicted, k = poisoned(draw.features(steps, rows, width), counted), draw.size(1, vocabulary + 1)
    weights = (1.0, float(draw.rng.choice([0.1, 0.0])), float(draw.rng.choice([1.0, 0.5])))
    trained, fixed = leaf(predicted), (torch.tensor(target), torch.tensor(head))
    found = []
    for s in range(steps):
        terms = [
            regression(trained[s], fixed[0], counted[s], 1.0),
            through_head(trained[s], *fixed, counted[s]),
            through_head(trained[s], *fixed, counted[s], k),
        ]
        found.append(weighted(terms, weights))
    case = HassLossCase(predicted, target, head, counted, k, 1.0, *weights)
    compare(losses.hass_loss(case), "predicted", trained, weighted(found, [1.0] * steps), found)


CONVENTIONS = list(itertools.product(DENOMINATORS, RESTRICTED_TARGETS, GATES, DIVERGENCES, REDUCTIONS))


@pytest.mark.parametrize(("denominator", "restricted", "gate", "divergence", "reduction"), CONVENTIONS)
def test_rollout(denominator: str, restricted: str, gate: str, divergence: str, reduction: str) -> None:
    for seed in range(12):
        draw = Draws(seed)
        steps, rows, vocabulary = draw.size(1, 3), draw.size(0, 4), draw.size(1, 6)
        ids = None if seed % 4 == 0 else draw.rng.permutation(vocabulary)[: draw.size(1, vocabulary)].astype(np.int64)
        mapped = np.arange(vocabulary) if ids is None else ids
        wide, target = draw.pair(steps, rows, vocabulary)
        counted, draft = draw.flags(steps, rows), wide[:, :, mapped]
        draft, target = poisoned(draft, counted), poisoned(target, counted)
        weights = None if seed % 2 else draw.rng.choice([0.0, 0.5, 1.25], steps).tolist()
        epsilon = (0.0, 1e-5, 0.25)[seed % 3]
        case = RolloutLossCase(
            draft, target, counted, weights, ids, denominator, restricted, gate, divergence, reduction, epsilon
        )
        trained = leaf(draft)
        terms = rollout_steps(case, trained)
        right = weighted(terms, [0.8**s for s in range(steps)] if weights is None else weights)
        if case.reduction == "mean" and right.value is not None:
            right = Term(right.value / steps, right.off, right.slope_off)
        compare(losses.rollout_loss(case), "draft_logits", trained, right, terms)


def test_the_cases_reach_everything_that_is_particular() -> None:
    """Ties at the cut of a top-K set, masked draft tokens with and without target mass, gates that close."""
    seen = dict.fromkeys(("tied", "masked", "infinite", "closed", "empty"), 0)
    for seed in SEEDS:
        draw = Draws(seed)
        shape = (draw.size(0, 5), draw.size(1, 7))
        counted = draw.flags(shape[0])
        draft, target = draw.pair(*shape)
        seen["empty"] += not counted.any()
        for r in np.flatnonzero(counted):
            finite = target[r][target[r] > -np.inf]
            seen["tied"] += len(set(finite.tolist())) < len(finite)
            seen["masked"] += bool(np.isneginf(draft[r]).any())
            seen["infinite"] += bool((np.isneginf(draft[r]) & (target[r] > -np.inf)).any())
            seen["closed"] += int(target[r].argmax()) != 0
    assert all(seen.values()), seen


def test_the_optimizer_is_that_of_torch() -> None:
    """AdamW, ten steps of about 20 roundings each, of numbers of the size of the parameter and of its updates."""
    rng = np.random.default_rng(3)
    ours = {"weight": rng.normal(size=(3, 4)), "bias": rng.normal(size=4)}
    theirs = {name: torch.tensor(value.copy(), requires_grad=True) for name, value in ours.items()}
    mine = AdamW(ours, 0.05)
    other = torch.optim.AdamW(theirs.values(), lr=RATE, betas=BETAS, weight_decay=0.05)
    for step in range(1, 11):
        gradient = {name: rng.normal(size=value.shape) for name, value in ours.items()}
        for name, weight in theirs.items():
            weight.grad = torch.tensor(gradient[name])
        mine.step(gradient)
        other.step()
        for name, value in ours.items():
            size = float(np.abs(value).max()) + 2 * RATE * step
            assert np.abs(value - theirs[name].detach().numpy()).max() <= 2 * gamma(20 * step) * size
