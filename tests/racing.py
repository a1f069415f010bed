"""A peer of the tests: arrays doubled."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

PACKAGE = "numpy"


def doubled(inputs: dict[str, np.ndarray]) -> Callable[[], dict[str, np.ndarray]]:
    """Twice `x`."""
    return lambda: {"y": inputs["x"] * 2}
