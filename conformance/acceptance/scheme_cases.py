"""Batches on which coin schemes, or accept operators, decide differently, whatever the precision."""

from __future__ import annotations

import numpy as np

from conformance.acceptance.cases import chain, one
from oracle.types import VerifyCase

_FORK = VerifyCase(
    np.array([-1, -1]),
    np.array([2, 1]),
    np.array([[0.1875, 0.1875, 0.625], [0.25, 0.5, 0.25], [0.5625, 0.125, 0.3125]]),
    "point",
)

SCHEME_BATCHES = (
    # accepted: one draft per node, none per parent, two by sample and match, three as a block
    one(
        chain(
            [2, 2, 0],
            [[0.125, 0.375, 0.5], [0.375, 0.375, 0.25], [0.25, 0.125, 0.625], [0.4375, 0.25, 0.3125]],
            [[0.3125, 0.375, 0.3125], [0.4375, 0.1875, 0.375], [0.25, 0.125, 0.625], [0.0625, 0.5, 0.4375]],
            "iid",
        ),
        [0.5625, 0.8125, 0.53125],
        0.1875,
    ),
    # three, two, one, none
    one(
        chain(
            [0, 1, 2],
            [[0.375, 0.1875, 0.4375], [0.4375, 0.25, 0.3125], [0.1875, 0.5625, 0.25], [0.0625, 0.375, 0.5625]],
            [[0.5625, 0.25, 0.1875], [0.3125, 0.375, 0.3125], [0.0625, 0.5625, 0.375], [0.5, 0.25, 0.25]],
            "iid",
        ),
        [0.15625, 0.09375, 0.5625],
        0.5625,
    ),
    # point proposals: the schemes that decide trees accept neither child, the second, the first
    one(_FORK, [0.6875, 0.96875], 0.125),
)

_PAIRS = ([0.25, 0.75], [0.5, 0.5]), ([0.125, 0.375, 0.5], [0.25, 0.5, 0.25]), ([0.5, 0.25, 0.25], [0.25, 0.25, 0.5])
OPERATOR_TIES = (
    one(chain([0], [_PAIRS[0][0], _PAIRS[0][1]], [_PAIRS[0][1], _PAIRS[0][0]], "iid"), [0.5], 0.5),
    one(chain([0], [_PAIRS[1][0], _PAIRS[1][1]], [_PAIRS[1][1], _PAIRS[1][0]], "iid"), [0.5], 0.5),
    one(chain([2], [_PAIRS[2][0], _PAIRS[2][1]], [_PAIRS[2][1], _PAIRS[2][0]], "iid"), [0.5], 0.5),
    one(chain([1], [_PAIRS[2][0], _PAIRS[2][1]], None, "point"), [0.25], 0.5),
)
"""u·q equals p, and no number on the way needs rounding."""
