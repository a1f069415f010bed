"""The step weights of a rollout's case, beside those that a package has of its own accord.

A decay that is a parameter of a trainer could be whatever a case asks for, and would show nothing. Adapters leave it to
the package, read what it made of that, and answer the cases of these weights alone.
"""

from __future__ import annotations

import math

from adapters.interface import NotApplicable
from oracle.types import RolloutLossCase


def powers_of(decay: float, case: RolloutLossCase) -> None:
    """`NotApplicable` where the weights of the case's steps are not 1, `decay`, `decay`², …"""
    steps = len(case.draft_logits)
    given = [0.8**s for s in range(steps)] if case.step_weights is None else [float(w) for w in case.step_weights]
    if len(given) != steps or any(not math.isclose(w, decay**s, rel_tol=1e-12) for s, w in enumerate(given)):
        raise NotApplicable(f"left alone, the package weighs step s by {decay:g}**s")
