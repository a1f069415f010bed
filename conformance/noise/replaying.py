"""What has to hold of noise that an implementation draws itself, in a golden vector.

"uniform_noise": the targets come back as they were. Each entry of the noise, features − the case's features, lies
within ±half_width, one at least beyond ±reached, and more than half of the entries differ; another seed gives other
noise. Bounds are meant beside the rounding of the noise and of its sum with the feature. Right noise reaches no
further than `reached` with the probability `chance` at most.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from adapters.interface import DTYPES, Declaration
from conformance import compare
from conformance.handout import copy
from conformance.roads import noise as road
from oracle.types import SampleCase

CHANCE = Fraction(1, 10**12)


def uniform_noise(case: SampleCase) -> Mapping[str, Any]:
    """The relation for a sample: of n uniforms all lie below the share r with probability rⁿ."""
    a = road.half_width("paper", len(case.features))
    share = max(Fraction(k, 64) for k in range(64) if Fraction(k, 64) ** case.features.size <= CHANCE)
    return {"relation": "uniform_noise", "half_width": a, "reached": share * a, "chance": CHANCE}


def broken(
    relation: Mapping[str, Any],
    operation: str,
    arguments: Mapping[str, Any],
    call: Callable[..., Any],
    declaration: Declaration,
) -> str | None:
    """Why the relation does not hold, or None."""
    case, unit = arguments["case"], DTYPES[declaration.arithmetic.dtype]
    noise, targets = _drawn(case, call(operation, copy(case)))
    if noise is None or targets is None:
        return "features and targets do not have the shapes of the case's"
    if not np.array_equal(targets, case.targets):
        return "the targets are not the case's"
    a, reached = (float(Fraction(relation[name])) for name in ("half_width", "reached"))
    allowed = unit * (5 * a + float(np.abs(case.features).max()))
    if not np.abs(noise).max() <= a + allowed:
        return f"an entry of the noise is ±{np.abs(noise).max():.6g}, and the law ends at ±{a:.6g}"
    if np.abs(noise).max() <= reached - allowed:
        return f"no entry of the noise lies beyond ±{reached:.6g}"
    # what a narrow dtype holds of an interval is so little that entries are equal by chance
    if unit < 2.0**-20 and 2 * len(set(noise.reshape(-1).tolist())) <= noise.size:
        return "half of the entries repeat others"
    other, _ = _drawn(case, call(operation, dataclasses.replace(copy(case), seed=case.seed + 1)))
    if other is None or np.array_equal(noise, other):
        return f"the seeds {case.seed} and {case.seed + 1} give the same noise"
    return None


def _drawn(case: SampleCase, found: Any) -> tuple[Any, Any]:
    """The noise and the targets in float64; None where their shapes are not the case's."""
    arrays = [compare.plain(getattr(found, name, None), name).astype(np.float64) for name in ("features", "targets")]
    if [array.shape for array in arrays] != [case.features.shape, case.targets.shape]:
        return None, None
    return arrays[0] - case.features, arrays[1]
