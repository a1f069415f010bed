"""The oracle of losses: examples worked by hand, the second road, and what it refuses."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.losses import judge, strategies
from conformance.losses.cases import edges
from conformance.losses.tolerance import Counter
from conformance.roads import losses as road
from oracle import losses
from oracle.errors import BadInput
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

INF = math.inf


def a(*rows: Any) -> np.ndarray:
    return np.array(rows, dtype=np.float64)


def log(*probabilities: float) -> list[float]:
    """Logits of a law, up to what a softmax takes away."""
    return [math.log(p) + 0.75 if p else -INF for p in probabilities]


ONE = np.array([True])
ALMOST = pytest.approx


# ---- worked by hand


def test_smooth_l1_of_residuals_on_both_sides_of_beta() -> None:
    found = losses.feature_regression(RegressionCase(a([0.5, 2.0]), a([0.0, 0.0]), ONE))
    assert found.value == (0.125 + 1.5) / 2
    assert found.grad["predicted"].tolist() == [[0.25, 0.5]]


def test_beta_bends_the_feature_loss() -> None:
    found = losses.feature_regression(RegressionCase(a([0.5, -2.0]), a([0.0, 0.0]), ONE, beta=4.0))
    assert found.value == (0.25 / 8 + 4 / 8) / 2
    assert found.grad["predicted"].tolist() == [[0.0625, -0.25]]


def test_soft_cross_entropy_and_its_gradient() -> None:
    p, q = [0.5, 0.25, 0.25], [0.25, 0.25, 0.5]
    found = losses.soft_cross_entropy(DistillCase(a(log(*q)), a(log(*p)), ONE))
    assert found.value == ALMOST(1.75 * math.log(2))
    assert found.grad["draft_logits"][0] == ALMOST([-0.25, 0.0, 0.25])


def test_rows_that_are_not_supervised_are_not_read() -> None:
    poison = [math.nan, INF, -INF]
    case = DistillCase(a(poison, log(0.25, 0.25, 0.5)), a(poison, log(0.5, 0.25, 0.25)), np.array([False, True]))
    found = losses.soft_cross_entropy(case)
    assert found.value == ALMOST(1.75 * math.log(2))
    assert found.grad["draft_logits"][0].tolist() == [0.0, 0.0, 0.0]


def test_masked_tokens() -> None:
    both = DistillCase(a(log(0.5, 0.0, 0.5)), a(log(0.25, 0.0, 0.75)), ONE)
    assert losses.soft_cross_entropy(both).value == ALMOST(math.log(2))
    impossible = DistillCase(a(log(0.5, 0.0, 0.5)), a(log(0.25, 0.25, 0.5)), ONE)
    assert losses.soft_cross_entropy(impossible).value == INF


def test_eagle_1_weighs_its_parts() -> None:
    """A residual of 1.1 loses 0.6; behind the head the drafter gives e^−2.4 to token 1. 0.6 and 2.4 make 0.84."""
    head = a([0.0], [1.0])
    predicted = -math.log(math.exp(2.4) - 1)
    case = Eagle1Case(a([predicted]), a([predicted + 1.1]), head, ONE)
    regression, classification = losses.eagle1_loss(case).parts
    assert regression == ALMOST(0.6)
    assert classification is not None
    law = 1 / (1 + math.exp(-(predicted + 1.1)))
    assert classification == ALMOST(law * 2.4 - (1 - law) * math.log(1 - math.exp(-2.4)))
    assert losses.eagle1_loss(case).value == ALMOST(0.6 + 0.1 * classification)
    assert losses.total([0.6, 2.4], [1.0, 0.1]) == ALMOST(0.84)


def test_a_zero_weight_drops_its_part() -> None:
    assert losses.total([INF, 2.0], [0.0, 0.5]) == 1.0
    assert losses.total([None, 2.0], [1.0, 0.5]) == 1.0
    assert losses.total([None, None], [1.0, 0.5]) is None


def test_the_top_k_term_is_z_times_its_renormalised_form() -> None:
    p, q = [0.5, 0.125, 0.375], [0.25, 0.25, 0.5]
    found = losses.topk_distillation(TopKCase(a(log(*q)), a(log(*p)), ONE, 2))
    assert found.value == ALMOST(0.5 * math.log(4) + 0.375 * math.log(2))
    assert found.grad["draft_logits"][0] == ALMOST([0.875 * 0.25 - 0.5, 0.875 * 0.25, 0.875 * 0.5 - 0.375])


def test_ties_and_large_k() -> None:
    p, q = [0.25, 0.25, 0.5], [0.5, 0.25, 0.25]
    tied = losses.topk_distillation(TopKCase(a(log(*q)), a([1.0, 1.0, 2.0]), ONE, 2))
    law = np.exp([1.0, 1.0, 2.0]) / np.exp([1.0, 1.0, 2.0]).sum()
    assert tied.value == ALMOST(law[0] * math.log(2) + law[2] * math.log(4))
    whole = losses.topk_distillation(TopKCase(a(log(*q)), a(log(*p)), ONE, 99))
    assert whole.value == losses.soft_cross_entropy(DistillCase(a(log(*q)), a(log(*p)), ONE)).value


def test_hass_sums_its_steps() -> None:
    head, target = a([1.0, 0.5], [0.25, -1.0], [0.5, 2.0]), a([0.5, -1.0], [1.5, 0.25])
    predicted = a([[1.0, 0.5], [0.25, 2.0]], [[-1.0, 0.5], [0.75, -2.0]])
    supervise = np.array([[True, False], [False, False]])
    found = losses.hass_loss(HassLossCase(predicted, target, head, supervise, 2))
    first = losses.eagle1_loss(Eagle1Case(predicted[0], target, head, supervise[0]))
    topk = losses.topk_distillation(TopKCase(predicted[0] @ head.T, target @ head.T, supervise[0], 2))
    assert first.value is not None and topk.value is not None
    assert found.parts == (ALMOST(first.value + topk.value), None)
    assert found.value == found.parts[0]
    assert not found.grad["predicted"][1].any()


# ---- rollouts

P, Q = [0.5, 0.25, 0.25], [0.25, 0.75]


def rollout(**changed: Any) -> RolloutLossCase:
    """One row on a draft vocabulary that stands for tokens 0 and 2: p = (1/2, 1/4), renormalised (2/3, 1/3)."""
    case = RolloutLossCase(a([log(*Q)]), a([log(*P)]), ONE[None], draft_to_target=np.array([0, 2]))
    return dataclasses.replace(case, **changed)


def test_the_restricted_target() -> None:
    renormalised = 2 / 3 * math.log(4) + 1 / 3 * math.log(4 / 3)
    assert losses.rollout_loss(rollout()).value == ALMOST(renormalised)
    assert losses.rollout_loss(rollout(restricted_target="raw")).value == ALMOST(0.75 * renormalised)
    kl = renormalised - (2 / 3 * math.log(3 / 2) + 1 / 3 * math.log(3))
    assert losses.rollout_loss(rollout(divergence="kl")).value == ALMOST(kl)
    assert losses.rollout_loss(rollout()).grad["draft_logits"][0, 0] == ALMOST([0.25 - 2 / 3, 0.75 - 1 / 3])
    raw = losses.rollout_loss(rollout(restricted_target="raw")).grad["draft_logits"][0, 0]
    assert raw == ALMOST([0.75 * 0.25 - 0.5, 0.75 * 0.75 - 0.25])


def test_the_gate() -> None:
    """p = (0.1, 0.1, 0.8) on the draft tokens 0 and 1: the row is masked, and not trained to (1/2, 1/2)."""
    case = rollout(target_logits=a([log(0.1, 0.1, 0.8)]), draft_to_target=np.array([0, 1]))
    found = losses.rollout_loss(case)
    assert (found.value, found.parts) == (None, (None,)) and not found.grad["draft_logits"].any()
    assert losses.rollout_loss(dataclasses.replace(case, gate="none")).value == ALMOST(
        0.5 * math.log(4) + 0.5 * math.log(4 / 3)
    )


@pytest.mark.parametrize(("denominator", "over"), [("supervised", 1), ("mask", 2), ("rows", 3)])
def test_denominators(denominator: str, over: int) -> None:
    """One row counts, one is behind the gate, one is not supervised."""
    case = rollout(
        draft_logits=a([log(*Q)] * 3),
        target_logits=a([log(*P), log(0.1, 0.8, 0.1), log(*P)]),
        supervise=np.array([[True, True, False]]),
        denominator=denominator,
    )
    alone = losses.rollout_loss(rollout()).value
    assert alone is not None and losses.rollout_loss(case).value == ALMOST(alone / over)
    more = dataclasses.replace(case, denominator_epsilon=0.5)
    assert losses.rollout_loss(more).value == ALMOST(alone / (over + 0.5))


def test_weights_of_steps() -> None:
    case = rollout(
        draft_logits=a([log(*Q)], [log(0.5, 0.5)]),
        target_logits=a([log(*P)], [log(*P)]),
        supervise=np.array([[True], [True]]),
    )
    first, second = losses.rollout_loss(case).parts
    assert first is not None and second is not None
    assert losses.rollout_loss(case).value == ALMOST(first + 0.8 * second)
    given_weights = dataclasses.replace(case, step_weights=(2.0, 0.0), reduction="mean")
    assert losses.rollout_loss(given_weights).value == ALMOST(first)
    skipped = dataclasses.replace(case, supervise=np.array([[True], [False]]))
    assert losses.rollout_loss(skipped).parts == (first, None)


def test_a_map_of_equal_widths_is_a_map() -> None:
    order = np.array([2, 0, 1])
    case = RolloutLossCase(a([log(0.5, 0.25, 0.25)]), a([log(0.25, 0.125, 0.625)]), ONE[None], draft_to_target=order)
    expected = 0.625 * math.log(2) + 0.25 * math.log(4) + 0.125 * math.log(4)
    assert losses.rollout_loss(case).value == ALMOST(expected)


def test_a_row_without_a_draft_token_does_not_count() -> None:
    case = rollout(
        draft_logits=a([log(*Q)] * 2),
        target_logits=a([log(*P), log(0.0, 1.0, 0.0)]),
        supervise=np.array([[True, True]]),
        gate="none",
    )
    alone = losses.rollout_loss(rollout()).value
    assert alone is not None and losses.rollout_loss(case).value == ALMOST(alone)
    assert losses.rollout_loss(dataclasses.replace(case, denominator="mask")).value == ALMOST(alone / 2)


# ---- maps


def test_offsets_and_absolute_ids() -> None:
    d2t = np.array([1, 2])
    assert losses.draft_to_target(DraftMapCase(d2t, None, "offset")).tolist() == [1, 3]
    assert losses.draft_to_target(DraftMapCase(d2t, None, "absolute")).tolist() == [1, 2]
    marks = np.array([False, True, False, True, False])
    assert losses.draft_to_target(DraftMapCase(d2t, marks, "offset")).tolist() == [1, 3]
    assert losses.draft_to_target(DraftMapCase(np.array([0, 0, 0]), None, "offset")).tolist() == [0, 1, 2]


# ---- bad input

REG = RegressionCase(a([0.5, 2.0]), a([0.0, 0.0]), ONE)
SOFT = DistillCase(a([0.5, 2.0]), a([0.0, 0.25]), ONE)
EAGLE = Eagle1Case(a([0.5, 2.0]), a([0.0, 0.25]), a([1.0, 2.0], [0.5, 0.25], [0.0, 1.0]), ONE)
TOP = TopKCase(a([0.5, 2.0]), a([0.0, 0.25]), ONE, 1)
HASS = HassLossCase(a([[0.5, 2.0]]), a([0.0, 0.25]), EAGLE.head, ONE[None], 1)
MAP = DraftMapCase(np.array([1, 2]), np.array([False, True, False, True]), "offset")

NUMBER = "a number that counts is finite"
LOGIT = "a logit that counts is finite or −inf"


@pytest.mark.parametrize(
    ("operation", "case", "changed", "message"),
    [
        ("feature_regression", REG, {"beta": 0.0}, "beta = 0.0: is above zero"),
        ("feature_regression", REG, {"beta": math.nan}, "beta = nan: is a finite number"),
        ("feature_regression", REG, {"target": a([0.0])}, "target = (1, 1): has shape [1, 2]"),
        ("feature_regression", REG, {"predicted": a([0.5, -INF])}, f"predicted[0][1] = -inf: {NUMBER}"),
        ("feature_regression", REG, {"target": a([math.nan, 1.0])}, f"target[0][0] = nan: {NUMBER}"),
        ("feature_regression", REG, {"supervise": np.array([1])}, "supervise = 'int64': holds booleans"),
        ("soft_cross_entropy", SOFT, {"draft_logits": a([0.5, INF])}, f"draft_logits[0][1] = inf: {LOGIT}"),
        ("soft_cross_entropy", SOFT, {"target_logits": a([math.nan, 0.0])}, f"target_logits[0][0] = nan: {LOGIT}"),
        (
            "soft_cross_entropy",
            SOFT,
            {"target_logits": a([-INF, -INF])},
            "target_logits[0]: a row that counts leaves some token unmasked",
        ),
        ("topk_distillation", TOP, {"k": 0}, "k = 0: is a whole number of at least 1"),
        ("topk_distillation", TOP, {"k": 1.5}, "k = 1.5: is a whole number of at least 1"),
        ("eagle1_loss", EAGLE, {"head": a([1.0, 2.0, 3.0])}, "head = (1, 3): has shape [V, 2]"),
        ("eagle1_loss", EAGLE, {"head": a([INF, 2.0])}, f"head[0][0] = inf: {NUMBER}"),
        (
            "eagle1_loss",
            EAGLE,
            {"classification_weight": INF},
            "classification_weight = inf: a weight is a finite number",
        ),
        ("hass_loss", HASS, {"predicted": a([[0.5, INF]])}, f"predicted[0][0][1] = inf: {NUMBER}"),
        ("hass_loss", HASS, {"supervise": ONE}, "supervise = (1,): has shape [1, 1]"),
        (
            "rollout_loss",
            rollout(),
            {"draft_to_target": None},
            "draft_logits = (1, 1, 2): without a map the draft vocabulary is the target's, of 3 tokens",
        ),
        (
            "rollout_loss",
            rollout(),
            {"draft_to_target": np.array([0, 3])},
            "draft_to_target[1] = 3: maps to a target id in [0, 3)",
        ),
        (
            "rollout_loss",
            rollout(),
            {"draft_to_target": np.array([2, 2])},
            "draft_to_target[1] = 2: two draft ids map to different target ids",
        ),
        (
            "rollout_loss",
            rollout(),
            {"step_weights": (1.0, 0.5)},
            "step_weights = (2,): there is one weight for each of the 1 steps",
        ),
        ("rollout_loss", rollout(), {"step_weights": (INF,)}, "step_weights[0] = inf: a weight is a finite number"),
        ("rollout_loss", rollout(), {"denominator": "all"}, "denominator = 'all': is one of supervised, mask, rows"),
        ("rollout_loss", rollout(), {"gate": True}, "gate = True: is one of argmax, none"),
        ("rollout_loss", rollout(), {"divergence": "js"}, "divergence = 'js': is one of cross_entropy, kl"),
        ("rollout_loss", rollout(), {"reduction": "none"}, "reduction = 'none': is one of sum, mean"),
        (
            "rollout_loss",
            rollout(),
            {"restricted_target": ""},
            "restricted_target = '': is one of renormalised, raw",
        ),
        ("rollout_loss", rollout(), {"denominator_epsilon": -1e-5}, "denominator_epsilon = -1e-05: is at least zero"),
        ("rollout_loss", rollout(), {"draft_logits": a([[math.nan, 0.0]])}, f"draft_logits[0][0][0] = nan: {LOGIT}"),
        ("draft_to_target", MAP, {"convention": "relative"}, "convention = 'relative': is one of offset, absolute"),
        ("draft_to_target", MAP, {"d2t": np.array([1, 1])}, "t2d[2] = False: marks exactly the ids that d2t maps to"),
        ("draft_to_target", MAP, {"d2t": np.array([1, 3])}, "d2t[1] = 4: maps to a target id in [0, 4)"),
        ("draft_to_target", MAP, {"d2t": np.array([1, 0])}, "d2t[1] = 1: two draft ids map to different target ids"),
        ("draft_to_target", MAP, {"d2t": np.array([1.0, 2.0])}, "d2t = 'float64': holds integers"),
    ],
)
def test_bad_input(operation: str, case: Any, changed: dict[str, Any], message: str) -> None:
    getattr(losses, operation)(case)
    with pytest.raises(BadInput) as error:
        getattr(losses, operation)(dataclasses.replace(case, **changed))
    assert str(error.value) == message


def test_a_case_is_of_its_type() -> None:
    with pytest.raises(BadInput, match=r"a case is an oracle\.types\.DistillCase"):
        losses.soft_cross_entropy(TOP)  # type: ignore[arg-type]


def test_values_are_plain_numbers() -> None:
    cases = (("feature_regression", REG), ("soft_cross_entropy", SOFT), ("eagle1_loss", EAGLE), ("hass_loss", HASS))
    for operation, case in cases:
        found = getattr(losses, operation)(case)
        assert [type(value) for value in (found.value, *found.parts)] == [float] * (1 + len(found.parts))


# ---- the second road

DRAWN = {
    "feature_regression": strategies.regressions(True),
    "soft_cross_entropy": strategies.distillations(True) | strategies.distillations(masked=True),
    "eagle1_loss": strategies.eagle1s(True),
    "topk_distillation": strategies.topks(True) | strategies.topks(whole=True),
    "hass_loss": strategies.hasses(True),
    "rollout_loss": strategies.rollouts({}, True, "anywhere", tuple(strategies.VALUES), permuted=True),
}


@pytest.mark.parametrize("operation", judge.OPERATIONS)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_the_second_road_agrees(operation: str, data: st.DataObject) -> None:
    judge.agree(operation, data.draw(DRAWN[operation]), slopes=True)


@pytest.mark.parametrize("operation", judge.OPERATIONS)
def test_the_second_road_agrees_at_the_edges(operation: str) -> None:
    for case in edges(operation, {}):
        judge.agree(operation, case, slopes=True)


def test_the_road_finds_gradients_by_differences() -> None:
    """A slope of the road is that of its own value, moved by a visible step."""
    case = Eagle1Case(a([0.5, 2.0]), a([0.0, 0.25]), a([1.0, 2.0], [0.5, 0.25], [0.0, 1.0]), ONE)
    step, slopes = 2.0**-20, road.eagle1_loss(case).gradient()
    for i in range(2):
        moved = [case.predicted.copy() for _ in range(2)]
        moved[0][0, i] += step
        moved[1][0, i] -= step
        up, down = (road.eagle1_loss(dataclasses.replace(case, predicted=p), False).value for p in moved)
        assert up is not None and down is not None
        assert float(up - down) / (2 * step) == ALMOST(slopes[0, i], rel=1e-6)


def test_state_gradients() -> None:
    assert road.state_gradient(StateGradientCase(3)) == [[True, False, False], [True, True, False], [True] * 3]
    assert road.state_gradient(StateGradientCase(2, "detached")) == [[True, False], [False, True]]


# ---- tolerances


@pytest.mark.parametrize(("dtype", "unit"), [("float32", 2.0**-24), ("float64", 2.0**-53), ("bfloat16", 2.0**-8)])
def test_tolerances_follow_the_dtype(dtype: str, unit: float) -> None:
    counter = Counter(SOFT, dtype)
    bound = counter.bounds(road.soft_cross_entropy(SOFT, False), False).value
    assert bound is not None and 10 * unit < bound < 120 * unit
    assert counter.holds(1 + 2 * unit) and (dtype == "float64" or not counter.holds(1 + unit))
    assert counter.cast([0.5, INF]) == 0.0


def test_more_roundings_than_a_number_has_bits_bound_nothing() -> None:
    assert Counter(SOFT, "bfloat16").gamma(200) == INF


def test_a_gradient_that_nothing_bounds_is_not_bounded_by_nan() -> None:
    wide = DistillCase(a([0.0] * 200 + [-INF]), a([0.0] * 200 + [-INF]), ONE)
    found = Counter(wide, "bfloat16").bounds(road.soft_cross_entropy(wide, True), True).gradient
    assert found is not None and np.isposinf(found).all()
    narrow = Counter(wide, "float64").bounds(road.soft_cross_entropy(wide, True), True).gradient
    assert narrow is not None and np.isfinite(narrow).all()
