"""Losses of drafter training: rows of features or logits, and which of them are supervised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from oracle.types.arrays import Flags, Ids, Rows
from oracle.words import DENOMINATORS as DENOMINATORS
from oracle.words import DIVERGENCES as DIVERGENCES
from oracle.words import GATES as GATES
from oracle.words import MAP_CONVENTIONS as MAP_CONVENTIONS
from oracle.words import REDUCTIONS as REDUCTIONS
from oracle.words import RESTRICTED_TARGETS as RESTRICTED_TARGETS


@dataclass(frozen=True, eq=False)
class LossResult:
    """A loss, its gradient and its terms.

    value: None where no row counts. grad: name of a trained input → float64 array of its shape, zeros where nothing
    counts; inputs of the teacher have no entry. parts: the unweighted terms of a loss of several, None for a term that
    counts no row. again: the gradient that a second backward over the same graph gives, where there is a graph.
    """

    value: float | None
    grad: Mapping[str, Rows]
    parts: tuple[float | None, ...] = ()
    again: Mapping[str, Rows] | None = None


@dataclass(frozen=True, eq=False)
class RegressionCase:
    """Smooth-L1 between features: predicted and target float64 [R, d], supervise bool [R], beta > 0."""

    predicted: Rows
    target: Rows
    supervise: Flags
    beta: float = 1.0


@dataclass(frozen=True, eq=False)
class DistillCase:
    """Cross-entropy against the target's whole law: logits float64 [R, V], supervise bool [R]; −inf masks a token."""

    draft_logits: Rows
    target_logits: Rows
    supervise: Flags


@dataclass(frozen=True, eq=False)
class Eagle1Case:
    """EAGLE-1: predicted and target features float64 [R, d], the frozen head float64 [V, d], supervise bool [R]."""

    predicted: Rows
    target: Rows
    head: Rows
    supervise: Flags
    beta: float = 1.0
    regression_weight: float = 1.0
    classification_weight: float = 0.1


@dataclass(frozen=True, eq=False)
class TopKCase:
    """HASS's top-K term: cross-entropy over the k tokens that the target finds most probable."""

    draft_logits: Rows
    target_logits: Rows
    supervise: Flags
    k: int


@dataclass(frozen=True, eq=False)
class HassLossCase:
    """HASS: T steps of predicted features [T, R, d] against one target [R, d]; rows are absolute, supervise [T, R]."""

    predicted: Rows
    target: Rows
    head: Rows
    supervise: Flags
    k: int
    beta: float = 1.0
    regression_weight: float = 1.0
    classification_weight: float = 0.1
    topk_weight: float = 1.0


@dataclass(frozen=True, eq=False)
class RolloutLossCase:
    """EAGLE-3: draft logits [T, R, Vd] against target logits [T, R, V], supervise bool [T, R].

    step_weights: one a step, None is 0.8**s. draft_to_target: int64 [Vd], the absolute target id of each draft id;
    None where the vocabularies are one. denominator: of a step's mean, "supervised" (rows that count after mask and
    gate), "mask" (rows of the mask) or "rows" (all R); `denominator_epsilon` is added to it. restricted_target: the
    target's law on the draft vocabulary, "renormalised" or "raw". gate: "argmax" counts a row only where the target's
    most probable token is in the draft vocabulary. divergence: "cross_entropy" or "kl". reduction over the T steps:
    "sum" or "mean".
    """

    draft_logits: Rows
    target_logits: Rows
    supervise: Flags
    step_weights: Sequence[float] | None = None
    draft_to_target: Ids | None = None
    denominator: str = "supervised"
    restricted_target: str = "renormalised"
    gate: str = "argmax"
    divergence: str = "cross_entropy"
    reduction: str = "sum"
    denominator_epsilon: float = 0.0


@dataclass(frozen=True, eq=False)
class DraftMapCase:
    """A draft vocabulary: d2t int64 [Vd], t2d bool [V] or None; convention "offset" (id = i + d2t[i]) or "absolute"."""

    d2t: Ids
    t2d: Flags | None
    convention: str
