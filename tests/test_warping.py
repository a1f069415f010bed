"""The oracle's warping: its arithmetic, its second road, what it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings

from conformance.acceptance import logits, warped
from conformance.acceptance.warp_cases import EXTREME_ROWS, NO_LAWS, OFF_ROWS, ORDER_ROWS, TIED_ROWS
from oracle.acceptance import warp
from oracle.errors import BadInput
from oracle.types import WarpCase
from oracle.warping import FILTER_ORDER, STAGES

FLOAT = np.array([2.0, 1.0, 0.0, -1.0])


def law(case: WarpCase, **conventions: str) -> list[float]:
    found: list[float] = warp(case, **conventions).reshape(-1).tolist()
    return found


def softmax(values: list[float]) -> list[float]:
    weights = [math.exp(v) for v in values]
    return [w / sum(weights) for w in weights]


def test_the_worked_example() -> None:
    """p = (.5, .25, .15, .1): top-p of 0.6 keeps two tokens, min-p of 0.45 keeps them, top-k of 3 three."""
    case = np.log(np.array([0.5, 0.25, 0.15, 0.1]))
    assert law(WarpCase(case)) == pytest.approx([0.5, 0.25, 0.15, 0.1])
    assert law(WarpCase(case, top_p=0.6)) == pytest.approx([2 / 3, 1 / 3, 0, 0])
    assert law(WarpCase(case, min_p=0.45)) == pytest.approx([2 / 3, 1 / 3, 0, 0])
    assert law(WarpCase(case, top_k=3)) == pytest.approx([0.5 / 0.9, 0.25 / 0.9, 0.15 / 0.9, 0])
    # of the three that top-k leaves the first two have 0.83; of the whole law they have 0.75
    assert law(WarpCase(case, top_k=3, top_p=0.8)) == pytest.approx([2 / 3, 1 / 3, 0, 0])
    whole_first = law(WarpCase(case, top_k=3, top_p=0.8), filter_order="temperature,top_p,top_k,min_p")
    assert whole_first == pytest.approx([0.5 / 0.9, 0.25 / 0.9, 0.15 / 0.9, 0])


def test_temperature_zero_and_its_neighbourhood() -> None:
    tied = np.array([0.5, 2.0, 2.0, -1.0])
    assert law(WarpCase(tied, 0.0)) == [0, 1, 0, 0]
    assert law(WarpCase(tied, 1e-300)) == [0, 0.5, 0.5, 0]
    assert law(WarpCase(tied, 0.0, 3, 0.2, 0.9)) == [0, 1, 0, 0]
    assert law(WarpCase(FLOAT, 0.5)) == pytest.approx(softmax([4, 2, 0, -2]))
    assert law(WarpCase(FLOAT, 1e300)) == pytest.approx([0.25] * 4)
    assert law(WarpCase(np.array([1.7e308, -1.7e308]), 1e-3)) == [1, 0]


def test_a_difference_that_overflows_is_scaled_first() -> None:
    assert law(WarpCase(np.array([1e308, -1e308]), 1e308)) == pytest.approx([0.880797, 0.119203], abs=1e-6)
    assert law(WarpCase(np.array([1e308, -1e308, -np.inf]), 1e308))[2] == 0
    assert law(WarpCase(np.array([1e308, -1e308, 1e308]), 1e-300)) == [0.5, 0, 0.5]


@pytest.mark.parametrize("k", [4, 2**63, 2**64, 10**30, np.uint64(2**64 - 1)])
def test_more_than_v_is_v(k: int) -> None:
    assert law(WarpCase(FLOAT, top_k=k)) == law(WarpCase(FLOAT))
    rows = np.array([FLOAT, FLOAT])
    assert warp(WarpCase(rows, top_k=[k, 1])).tolist() == [law(WarpCase(FLOAT)), [1, 0, 0, 0]]  # type: ignore[arg-type]


def test_ties_at_the_cut() -> None:
    tied = np.array([1.0, 2.0, 2.0, 2.0, 0.0])
    assert law(WarpCase(tied, top_k=2)) == [0, 0.5, 0.5, 0, 0]
    assert law(WarpCase(tied, top_k=2), top_k_ties="keep") == pytest.approx([0, 1 / 3, 1 / 3, 1 / 3, 0])
    assert law(WarpCase(np.zeros(4), top_p=0.5)) == [0.5, 0.5, 0, 0]


def test_masked_tokens() -> None:
    masked = np.array([-np.inf, 0.0, -np.inf, 1.0])
    assert law(WarpCase(masked, top_k=3)) == pytest.approx([0, *softmax([0.0, 1.0])[:1], 0, softmax([0.0, 1.0])[1]])


def test_rows_with_parameters_of_their_own() -> None:
    rows = np.array([[2.0, 1.0, 0.0], [0.0, 1.0, 2.5], [1.0, -1.0, 0.5]])
    case = WarpCase(rows, np.array([0.0, 2.0, 1.0]), np.array([0, 2, 3]), np.array([1.0, 1.0, 0.4]), 0.0)
    alone = [
        warp(WarpCase(rows[0], 0.0)),
        warp(WarpCase(rows[1], 2.0, 2)),
        warp(WarpCase(rows[2], 1.0, 3, 0.4)),
    ]
    assert warp(case).tolist() == [row.tolist() for row in alone]


@pytest.mark.parametrize("case", [*EXTREME_ROWS, *OFF_ROWS, *TIED_ROWS, *ORDER_ROWS])
def test_both_roads_agree_on_the_kept_rows(case: WarpCase) -> None:
    for order in warped.orders(STAGES):
        for ties in ("exact", "keep"):
            found = warp(case, order, ties)
            (right,) = warped.by_road(case, order, ties)
            judge = warped.Judge(case, 0, right, "float64")
            assert judge.decidable and not judge.differs(found[0]), (order, ties)


@settings(max_examples=300, deadline=None)
@given(logits.combined() | logits.one_row((1.0, *logits.TEMPERATURES)) | logits.side_by_side())
def test_both_roads_agree_on_drawn_rows(case: WarpCase) -> None:
    found = warp(case).reshape(-1, np.asarray(case.logits).shape[-1])
    for r, right in enumerate(warped.by_road(case, FILTER_ORDER, "exact")):
        judge = warped.Judge(case, r, right, "float64")
        assert not judge.decidable or not judge.differs(found[r])


@pytest.mark.parametrize("case", NO_LAWS)
def test_no_laws_are_refused(case: WarpCase) -> None:
    with pytest.raises(BadInput, match=r"case\.logits\[\d\]"):
        warp(case)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"temperature": -1.0}, r"case.temperature = -1.0: a temperature is finite and not negative"),
        ({"temperature": math.nan}, r"case.temperature"),
        ({"temperature": math.inf}, r"case.temperature"),
        ({"temperature": "hot"}, r"case.temperature .*is a real number"),
        ({"top_k": -1}, r"case.top_k = -1: top_k is not negative"),
        ({"top_k": 2.0}, r"case.top_k .*is an integer"),
        ({"top_p": 0.0}, r"case.top_p = 0.0: top_p lies in \(0, 1\]"),
        ({"top_p": 1.5}, r"case.top_p"),
        ({"min_p": -0.1}, r"case.min_p = -0.1: min_p lies in \[0, 1\]"),
        ({"temperature": np.array([1.0, 2.0])}, r"case.temperature .*one for each of the 1 rows"),
        ({"logits": np.zeros((2, 2, 2))}, r"case.logits .*has shape \[V\] or \[R, V\]"),
        ({"logits": np.zeros((2, 0))}, r"case.logits .*has shape"),
        ({"logits": np.array([1, 2])}, r"case.logits .*floating-point"),
        ({"logits": np.zeros((2, 3)), "top_p": np.array([0.5, 0.0])}, r"case.top_p\[1\] = 0.0"),
        ({"logits": np.zeros((2, 3)), "top_p": np.array([2.0, 2.0])}, r"case.top_p\[0\] = 2.0"),
        ({"logits": np.zeros((2, 3)), "top_p": 2.0}, r"case.top_p = 2.0"),
        ({"logits": np.zeros((2, 3)), "top_k": [2**64, -1]}, r"case.top_k\[1\] = -1: top_k is not negative"),
        ({"logits": np.zeros((2, 3)), "top_k": [[1], [1, 2]]}, r"case.top_k .*is an array"),
        ({"logits": [[1.0, 2.0], [3.0]]}, r"case.logits .*is an array"),
        ({"temperature": 10**400}, r"case.temperature = 10*: a temperature is finite"),
        ({"top_k": -(10**5000)}, r"case.top_k = a huge int: top_k is not negative"),
        ({"top_k": True}, r"case.top_k = True: is an integer"),
    ],
)
def test_bad_input_names_field_index_and_rule(change: dict[str, object], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        warp(WarpCase(**({"logits": FLOAT} | change)))  # type: ignore[arg-type]


@pytest.mark.parametrize("order", ["heat", "top_k,top_k", "temperature+top_k", 3, "top_k,,top_p", np.array(["a", "b"])])
def test_unknown_orders_are_refused(order: object) -> None:
    with pytest.raises(BadInput, match="filter_order"):
        warp(WarpCase(FLOAT), order)  # type: ignore[arg-type]


@pytest.mark.parametrize("ties", ["some", None, [], np.array(["exact", "keep"])])
def test_unknown_ties_are_refused(ties: object) -> None:
    with pytest.raises(BadInput, match="top_k_ties"):
        warp(WarpCase(FLOAT), top_k_ties=ties)  # type: ignore[arg-type]


def test_an_order_without_a_stage_leaves_it_out() -> None:
    assert law(WarpCase(FLOAT, 0.5, 2), filter_order="temperature") == pytest.approx(softmax([4, 2, 0, -2]))
    assert law(WarpCase(FLOAT, 0.5, 2), filter_order="") == pytest.approx(softmax([2, 1, 0, -1]))


def test_a_float32_case_stays_as_it_is() -> None:
    case = WarpCase(np.array([[0.5, 1.5]], dtype=np.float32), 2.0)
    assert warp(case).dtype == np.float64
    assert case.logits.tolist() == [[0.5, 1.5]]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_it_is_the_softmax_of_torch(temperature: float) -> None:
    torch = pytest.importorskip("torch")
    rows = np.array([[0.25, -3.0, 1.5], [800.0, 799.0, -800.0]])
    right = torch.softmax(torch.from_numpy(rows) / temperature, dim=-1).numpy()
    assert warp(WarpCase(rows, temperature)) == pytest.approx(right, rel=1e-13, abs=1e-300)
