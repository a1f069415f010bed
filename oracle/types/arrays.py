"""The arrays that the dataclasses hold."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Rows = NDArray[np.float64]
Flags = NDArray[np.bool_]
