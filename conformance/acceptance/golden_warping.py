"""The golden cases of warping: one filter at a time, all together, rows side by side, and what is no row.

Expected laws are computed at fifty digits and rounded once. How far an implementation may stray is the bound that the
suite's own checks derive (`conformance.acceptance.warped`): for a dtype of roundoff u, the entry of the exponent
x = (l − max)/T carries (V + 6 + 2|x|)u, the cast and the quotient of the logits, (V + 3)u for each filter that may
renormalise, and as much again for the sum that it is divided by. Divided by u, that is a number of roundings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from adapters.interface import DTYPES
from conformance.acceptance.golden_making import ids
from conformance.acceptance.warp_cases import (
    COLD_BESIDE_WARM,
    FLAT_BESIDE_PEAKED,
    NO_LAWS,
    ORDER_ROWS,
    TIED_ROWS,
    TIES_OF_THE_KTH,
    WITNESSES,
    row,
)
from conformance.acceptance.warped import ORDER, TIES, by_road, rows_of
from conformance.fixtures import digits
from conformance.fixtures.flags import UNCHANGED
from conformance.fixtures.golden import Answer, Golden
from conformance.roads import digits_warping
from conformance.roads import warping as road
from conformance.verdicts import HarnessError
from oracle import acceptance as oracle
from oracle.errors import BadInput
from oracle.types import WarpCase


@dataclass(frozen=True, eq=False)
class NoLaw(Golden):
    """Rows that are refused, or come back as what is visibly no law."""


STAGES = f"filter_order={ORDER}"
EXACTLY = "top_k_ties=exact"


def warped(told: str, case: WarpCase, *clauses: int, flags: tuple[str, ...] = ()) -> Golden:
    return Golden("warp", ids(clauses), told, {"case": case}, flags)


def side_by_side(logits: Sequence[Sequence[float]], *given: Any) -> WarpCase:
    """Rows, and one parameter for all or one a row."""
    held = [np.array(one) if isinstance(one, list) else one for one in given]
    return WarpCase(np.array(logits, dtype=np.float64), *held)


_PLAIN = [0.25, 1.0, -0.75, 0.5]
_TIED = [0.5, 2.0, 2.0, 1.75]
_MASKED = [0.5, -math.inf, 1.25, -0.25, -math.inf, 1.0]
_SEVERAL = side_by_side([_MASKED, _MASKED[::-1], [2.0, 0.5, 1.0, 0.0, 1.5, -0.5]], 0.5, 2)
_OWN = side_by_side(
    [
        [0.25, 1.0, -0.5, 0.75, 0.0],
        [0.5, -1.0, 0.25, 1.5, 1.0],
        [1.0, 0.75, -0.25, 0.0, 0.5],
        [0.0, 0.5, 1.0, -1.0, 0.25],
    ],
    [0.5, 1.0, 2.0, 1.0],
    [0, 2, 4, 3],
    [0.75, 1.0, 0.9, 0.6],
    [0.0, 0.0, 0.25, 0.125],
)

WARPED: tuple[Golden, ...] = (
    warped("The softmax of a row, every filter off", row(_PLAIN), 1001, 1002, 1003),
    warped("A temperature of one half sharpens a row", row(_PLAIN, 0.5), 1003, 1016, flags=(UNCHANGED,)),
    warped("A temperature of two flattens it", row(_PLAIN, 2.0), 1003),
    warped("A temperature that no power of two is", row([0.3, -1.7, 0.9, 0.1, 0.6], 0.7), 1001, 1003),
    warped("A vector of logits is one row", WarpCase(np.array([1.5, -0.5, 0.75]), 0.5), 1001, 1003),
    warped("Temperature zero takes the lowest of the largest", row([0.5, 2.0, -1.0, 2.0], 0.0), 1004, flags=("ties",)),
    warped(
        "Temperature zero takes no notice of filters",
        row([0.5, 2.0, 2.0, 1.0], 0.0, 3, 0.9, 0.1),
        1004,
        flags=("ties",),
    ),
    warped("A temperature near zero is the limit", row([0.25, 1.0, 0.75, -2.0], 2.0**-20), 1005),
    warped("Near zero, tied tokens share the limit", row([0.25, 1.0, 1.0, -2.0], 2.0**-60), 1005, flags=("ties",)),
    warped("A large temperature leaves all tokens alike", row([0.0, -0.25, 0.5, 0.25], 2.0**20), 1005),
    warped("Logits whose exponentials overflow", row([1000.0, 999.5, 998.0, -1000.0]), 1005, flags=("large",)),
    warped("Logits whose exponentials all underflow", row([-1000.0, -1001.0, -1000.5]), 1005, flags=("large",)),
    warped("Top-k of the whole vocabulary is off", row(_PLAIN, 1.0, 4), 1002),
    warped("Top-k beyond the vocabulary is off", row([-0.25, 2.0, 0.75], 1.0, 2**31 - 1), 1002),
    warped("Top-p of one keeps the last of the tail", row([-4.0, 40.0, 0.0, -8.0], top_p=1.0), 1002),
    warped("Min-p of zero keeps the last of the tail", row([-4.0, 30.0, 0.0, -8.0], min_p=0.0), 1002),
    warped("Top-k of one", row([0.5, -2.0, 0.75, 0.25], top_k=1), 1006),
    warped("Top-k ranks logits, not their magnitude", row([0.5, -2.0, 0.75, -1.0, 0.25], top_k=3), 1006, 1009),
    warped("Top-p reaches its mass with the second token", row([0.0, 1.5, 0.5, 1.25], top_p=0.6), 1007, 1009),
    warped("Top-p that one token reaches", row([0.0, 3.0, 0.5, 1.0], top_p=0.5), 1007),
    warped("Top-p that needs every token", WITNESSES["nucleus_of_all_tokens"], 1007, 1009),
    warped("Min-p compares with the largest probability", row([0.0, 1.5, 0.25, 1.0, -1.0], min_p=0.3), 1008, 1009),
    warped(
        "Min-p of one keeps what ties with the largest", row([0.5, 2.0, 2.0, 1.75], min_p=1.0), 1008, flags=("ties",)
    ),
    warped("Masked tokens get nothing", row(_MASKED), 1010),
    warped("Masked tokens take no place in top-k", row(_MASKED, top_k=3), 1006, 1010),
    warped("Masked tokens take no place in top-p", row(_MASKED, top_p=0.8), 1007, 1010),
    warped("Of four tied tokens top-k keeps the lowest ids", TIED_ROWS[0], 1011, flags=("ties", EXACTLY)),
    warped("All tokens tied at top-k", TIED_ROWS[1], 1011, flags=("ties", EXACTLY)),
    warped("Tied at the cut of top-p", TIED_ROWS[3], 1011, flags=("ties",)),
    warped("Tied with the k-th, at another temperature", TIES_OF_THE_KTH[1], 1011, flags=("ties", EXACTLY)),
    *(
        warped(f"{told} in the order of their names", case, 1012, flags=(STAGES,))
        for told, case in (
            ("Temperature, top-k and top-p", ORDER_ROWS[0]),
            ("A flattening temperature, top-k and top-p", ORDER_ROWS[1]),
            ("Temperature, top-p and min-p", ORDER_ROWS[2]),
            ("All four", ORDER_ROWS[3]),
            ("A sharpening temperature, top-p and min-p", ORDER_ROWS[4]),
        )
    ),
    warped("Three rows side by side, and one threshold each", FLAT_BESIDE_PEAKED, 1008, 1013, flags=("batch",)),
    warped(
        "Rows of other survivors and masks",
        side_by_side([_MASKED, _MASKED[::-1], [2.0, 0.5, 1.0, 0.0, 1.5, -0.5]], 0.5, 2),
        1010,
        1013,
        flags=("batch", STAGES),
    ),
    warped("Rows of temperature zero, one and a half", COLD_BESIDE_WARM, 1004, 1014, flags=("batch", UNCHANGED)),
    warped("Each row with all of its own parameters", _OWN, 1012, 1013, 1014, flags=("batch", STAGES)),
    *(
        NoLaw("warp", ids([1015]), told, {"case": case}, ("hostile",))
        for told, case in (
            ("A row that holds NaN has no law", NO_LAWS[0]),
            ("A row of NaN alone has no law", NO_LAWS[1]),
            ("A row that holds +∞ has no law", NO_LAWS[2]),
            ("A row that is masked altogether has no law", NO_LAWS[4]),
            ("A row that holds NaN has no law at temperature zero, either", NO_LAWS[6]),
            ("One of three rows holds NaN", NO_LAWS[7]),
        )
    ),
)


def answer(golden: Golden) -> Answer:
    """At fifty digits, near the sixty of the other road, and where the oracle lands within its bound."""
    case: WarpCase = golden.arguments["case"]
    if isinstance(golden, NoLaw):
        return _no_law(golden.description, case)
    shape = np.asarray(case.logits).shape
    (value,) = digits.settled(lambda count: [digits.floats(digits_warping.rows(case, count)).reshape(shape)])
    found, other = oracle.warp(case).reshape(-1, shape[-1]), by_road(case, ORDER, TIES)
    roundings = 0.0
    for r, (law, right) in enumerate(zip(value.reshape(-1, shape[-1]), other)):
        carried = _carried(case, r, right)
        for v, expected in enumerate(law.tolist()):
            near, carrying = 2.0**-52 * expected, carried[v] * 2.0**-53 * expected
            if abs(float(right.law[v]) - expected) > near or abs(found[r, v] - expected) > carrying:
                three = f"{expected}, {float(right.law[v])} and {found[r, v]}"
                raise HarnessError(f"{golden.description}: token {v} has {three} by three roads")
            roundings = max(roundings, carried[v] if expected > 0 else 0.0)
    return Answer(value, ("mpmath", "decimal", "oracle"), "relative", {"roundings": math.ceil(roundings)})


def _no_law(told: str, case: WarpCase) -> Answer:
    """Which rows have none: by hand and by the oracle, which refuses the first of them."""
    spoilt = [r for r, one in enumerate(rows_of(case)) if not all(v < math.inf for v in one) or max(one) == -math.inf]
    try:
        oracle.warp(case)
    except BadInput as error:
        if error.field == "case.logits" and error.index[:1] == tuple(spoilt[:1]):
            return Answer({"relation": "no_law", "rows": spoilt}, ("oracle", "by hand"), "relation")
    raise HarnessError(f"{told}: the oracle does not refuse row {spoilt}")


def _carried(case: WarpCase, r: int, right: road.Warped) -> list[float]:
    """Of each entry, how many roundings it may be off in any dtype."""
    logits, temperature = rows_of(case)[r], road.parameters(case, r).temperature
    size = len(logits)
    cast = max(road.cast_error(logit, temperature, unit) / unit for logit in logits for unit in DTYPES.values())
    own = [size + 6 + 2 * min(abs(float(x)), 1e6) + 2 * cast + 3 * (size + 3) for x in right.exponents]
    kept = max(own[v] for v, p in enumerate(right.law) if float(p) > 0)
    return [one + kept for one in own]
