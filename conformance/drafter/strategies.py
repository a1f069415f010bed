"""Drafters drawn by Hypothesis: variants, sizes, seeds, prefixes whose positions skip, rollouts."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from conformance.drafter.making import NARROW, PLAIN, SKEWED, Sizes, make
from oracle.types import DRAFTERS, FUSION_ORDERS, DrafterCase

EAGLE1, EAGLE3, PROJECTED = DRAFTERS
THREE = (EAGLE3, PROJECTED)
SMALL = Sizes(4, 2, 1, 4, 5, 9, 6)
GROUPED = (SKEWED, NARROW)
"""Fewer groups than heads, and more than one."""


def drafters(
    variants: Sequence[str] = DRAFTERS,
    sizes: Sequence[Sizes] = (SMALL, SKEWED, PLAIN, NARROW),
    rows: tuple[int, int] = (1, 4),
    rollout: tuple[int, int] = (0, 0),
) -> st.SearchStrategy[DrafterCase]:
    """Whole drafters; checks switch off what they do not judge."""

    def build(
        variant: str,
        size: Sizes,
        seed: int,
        gaps: list[int],
        steps: int,
        knobs: tuple[float, float, str, bool],
    ) -> DrafterCase:
        positions = [sum(gaps[: i + 1]) for i in range(len(gaps))]
        epsilon, theta, order, bias = knobs
        return make(variant, size, seed, len(gaps), steps, epsilon, theta, order, positions, bias)

    knobs = st.tuples(
        st.sampled_from([0.5, 1e-5, 0.05]),
        st.sampled_from([500.0, 10000.0, 1e6]),
        st.sampled_from(FUSION_ORDERS),
        st.booleans(),
    )
    gaps = st.lists(st.sampled_from([1, 2, 5]), min_size=rows[0], max_size=rows[1])
    return st.builds(
        build,
        st.sampled_from(list(variants)),
        st.sampled_from(list(sizes)),
        st.integers(0, 10_000),
        gaps,
        st.integers(*rollout),
        knobs,
    )
