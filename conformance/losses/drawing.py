"""Cases of losses drawn for a person: rows beside each other, those that count marked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from conformance.draw import drawer, number, row
from oracle.types import (
    DistillCase,
    DraftMapCase,
    Eagle1Case,
    HassLossCase,
    RegressionCase,
    RolloutLossCase,
    StateGradientCase,
    TopKCase,
)


@drawer(RegressionCase)
def regression(case: RegressionCase) -> str:
    head = f"{_many(len(case.supervise), 'row')} of features; beta {number(case.beta)}"
    return "\n".join([head, *_pairs(case.predicted, case.target, case.supervise, "predicted", "target")])


@drawer(DistillCase)
def distillation(case: DistillCase) -> str:
    head = f"{_many(len(case.supervise), 'row')} of logits over {case.draft_logits.shape[1]} tokens"
    return "\n".join([head, *_pairs(case.draft_logits, case.target_logits, case.supervise, "draft", "target")])


@drawer(TopKCase)
def topk(case: TopKCase) -> str:
    head = f"{_many(len(case.supervise), 'row')} of logits over {case.draft_logits.shape[1]} tokens; k = {case.k}"
    return "\n".join([head, *_pairs(case.draft_logits, case.target_logits, case.supervise, "draft", "target")])


@drawer(Eagle1Case)
def eagle1(case: Eagle1Case) -> str:
    head = (
        f"{_many(len(case.supervise), 'row')} of features, a head of {len(case.head)} tokens; beta "
        f"{number(case.beta)}, weights {number(case.regression_weight)} and {number(case.classification_weight)}"
    )
    rows = _pairs(case.predicted, case.target, case.supervise, "predicted", "target")
    return "\n".join([head, *rows, *_matrix("head of token", case.head)])


@drawer(HassLossCase)
def hass(case: HassLossCase) -> str:
    steps, rows, _ = case.predicted.shape
    weights = ", ".join(map(number, (case.regression_weight, case.classification_weight, case.topk_weight)))
    head = (
        f"{_many(steps, 'step')} of {_many(rows, 'row')} of features, a head of {len(case.head)} tokens; "
        f"k = {case.k}, beta {number(case.beta)}, weights {weights}"
    )
    lines = [head, *_matrix("target of row", case.target)]
    for s in range(steps):
        lines.append(f"  step {s}")
        lines += [f"  {line}" for line in _rows(case.predicted[s], case.supervise[s], "predicted")]
    return "\n".join([*lines, *_matrix("head of token", case.head)])


@drawer(RolloutLossCase)
def rollout(case: RolloutLossCase) -> str:
    steps, rows, width = case.draft_logits.shape
    vocabulary = f"{width} draft tokens of {case.target_logits.shape[2]}"
    stands = "" if case.draft_to_target is None else f"; draft ids stand for {case.draft_to_target.tolist()}"
    lines = [f"{_many(steps, 'step')} of {_many(rows, 'row')} of logits, {vocabulary}{stands}"]
    weights = "0.8**s" if case.step_weights is None else row(list(case.step_weights))
    lines.append(
        f"  weights {weights}; denominator {case.denominator} + {number(case.denominator_epsilon)}; restricted target "
        f"{case.restricted_target}; gate {case.gate}; divergence {case.divergence}; reduction {case.reduction}"
    )
    for s in range(steps):
        lines.append(f"  step {s}")
        pairs = _pairs(case.draft_logits[s], case.target_logits[s], case.supervise[s], "draft", "target")
        lines += [f"  {line}" for line in pairs]
    return "\n".join(lines)


@drawer(DraftMapCase)
def draft_map(case: DraftMapCase) -> str:
    marks = "no t2d" if case.t2d is None else f"t2d marks {np.flatnonzero(case.t2d).tolist()} of {len(case.t2d)}"
    return f"d2t = {case.d2t.tolist()}, {case.convention}; {marks}"


@drawer(StateGradientCase)
def state_gradient(case: StateGradientCase) -> str:
    return f"a rollout of {_many(case.steps, 'step')}, gradient {case.gradient}"


def _pairs(first: np.ndarray, second: np.ndarray, supervise: np.ndarray, here: str, there: str) -> list[str]:
    return [f"{line}  {there} {row(other)}" for line, other in zip(_rows(first, supervise, here), second[:_MOST])]


_MOST = 12


def _many(count: int, name: str) -> str:
    return f"{count} {name}{'' if count == 1 else 's'}"


def _rows(rows: np.ndarray, supervise: np.ndarray, name: str) -> list[str]:
    marks: Sequence[str] = ["supervised" if flag else "not supervised" for flag in supervise]
    return [f"  row {r} ({marks[r]}): {name} {row(values)}" for r, values in enumerate(rows[:_MOST])]


def _matrix(name: str, rows: np.ndarray) -> list[str]:
    return [f"  {name} {i}: {row(values)}" for i, values in enumerate(rows)]
