"""What the checks of the drafter run on, and cases worth keeping by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from conformance import draw
from conformance.casefile import storable
from conformance.drafter import drawing as drawing
from conformance.drafter import shapes
from conformance.drafter.making import NARROW, PLAIN, SERVED, SKEWED, Sizes, make
from oracle import drafter as oracle
from oracle.types import DRAFTERS, DrafterCase

EAGLE1, EAGLE3, PROJECTED = DRAFTERS


@storable
@dataclass(frozen=True, eq=False)
class Turns:
    """Drafters at work one after the other."""

    cases: tuple[DrafterCase, ...]

    def drawn(self) -> str:
        return "\n".join(f"case {i}: {draw.drawn(case)}" for i, case in enumerate(self.cases))


def validate(case: object) -> None:
    """Refuse a case that no implementation answers for. Raises `BadInput`."""
    for one in case.cases if isinstance(case, Turns) else [case]:
        if isinstance(one, DrafterCase):
            oracle.draft_logits(one)


SKIPS = (3, 4, 7, 8, 19)
"""Positions that start late and skip."""


def named(variant: str, seed: int = 1) -> tuple[DrafterCase, ...]:
    """Drafters of several sizes, prefixes and rollouts of one variant: checks switch off what they do not judge."""
    return (
        make(variant, SKEWED, seed, 5, 4, positions=SKIPS, theta=500.0),
        make(variant, NARROW, seed + 1, 3, 1, 0.05, order="feature_first", bias=True, positions=(0, 2, 6)),
        make(variant, SERVED, seed + 2, 4, 2, 1e-5, 1e6, positions=(300, 301, 305, 313)),
        make(variant, PLAIN, seed + 3, 2, 4, 1e-6, 20.0, order="feature_first", positions=(41, 43)),
    )


EAGLE1_CASES = named(EAGLE1)
EAGLE3_CASES = named(EAGLE3)
PROJECTED_CASES = named(PROJECTED)
SKEWED_CASES = tuple(cases[0] for cases in (EAGLE1_CASES, EAGLE3_CASES, PROJECTED_CASES))
SERVED_CASES = tuple(cases[2] for cases in (EAGLE1_CASES, EAGLE3_CASES, PROJECTED_CASES))
EVERY = tuple(case for three in zip(EAGLE1_CASES, EAGLE3_CASES, PROJECTED_CASES) for case in three)
THREES = tuple(case for pair in zip(EAGLE3_CASES, PROJECTED_CASES) for case in pair)
TWINS = tuple(case for three in zip(*(named(variant, 20) for variant in DRAFTERS)) for case in three)
"""Other drafters of the same sizes."""
LONGER = tuple(make(v, SKEWED, 30 + i, 3, 9, positions=(5, 9, 10), theta=500.0) for i, v in enumerate(DRAFTERS))
"""Rollouts of nine tokens."""


def large(variant: str) -> DrafterCase:
    """A vocabulary beyond 16 bits, of which a few tokens are consumed; the others are embedded as zeros."""
    tokens, rollout = np.array([65_536, 3, 70_000, 65_539]), np.array([69_999])
    small = make(variant, Sizes(4, 2, 1, 4, 5, 6, 6), 50, 4, 1)
    table = np.zeros((70_001, 4))
    table[[*tokens, *rollout]] = small.weights["embed_tokens.weight"][:5]
    weights = {**small.weights, "embed_tokens.weight": table}
    return dataclasses.replace(small, weights=weights, tokens=tokens, rollout_tokens=rollout)


LARGE = {variant: large(variant) for variant in DRAFTERS}

SHAPES: Mapping[str, tuple[Callable[[DrafterCase], DrafterCase], tuple[str, ...]]] = {
    "residual": (shapes.residual, DRAFTERS),
    "own_feature": (shapes.own_feature, DRAFTERS),
    "own_token": (shapes.own_token, (EAGLE1,)),
    "fusion_order": (shapes.fused, (EAGLE1,)),
    "layers": (shapes.fused, (EAGLE3, PROJECTED)),
    "input_norm": (shapes.norm_of_the_embedding, (EAGLE3,)),
    "pair": (shapes.values_of_one_row, DRAFTERS),
    "seen_rows": (shapes.seen_rows, DRAFTERS),
    "read_tokens": (shapes.read_tokens, (EAGLE3, PROJECTED)),
    "groups": (shapes.shared_values, DRAFTERS),
    "attention": (shapes.attention, DRAFTERS),
    "scale": (shapes.unturned, DRAFTERS),
    "rotary_layout": (shapes.first_pairs, DRAFTERS),
    "silu": (shapes.unit_state, DRAFTERS),
    "head": (shapes.headed, DRAFTERS),
    "last_row": (shapes.unit_rows, DRAFTERS),
    "mapped": (shapes.mapped, (EAGLE3, PROJECTED)),
    "step": (shapes.one_step, DRAFTERS),
    "fed_back": (shapes.fed_back, DRAFTERS),
    "fused_again": (shapes.fused_again, (EAGLE3, PROJECTED)),
    "rollout_seen": (shapes.rollout_seen, DRAFTERS),
    "rollout_positions": (shapes.rollout_positions, DRAFTERS),
    "rollout": (shapes.whole, DRAFTERS),
}
"""Name → what isolates a clause, and the variants that know it."""
WITNESSES: Mapping[str, Any] = {
    **{
        f"{name}_{case.variant}{size}": shape(case)
        for name, (shape, variants) in SHAPES.items()
        for size, cases in (("", SKEWED_CASES), ("_served", SERVED_CASES))
        for case in cases
        if case.variant in variants
    },
    **{f"fusion_bias_{case.variant}": shapes.bare(case) for case in EVERY if "fc.bias" in case.weights},
}
"""Cases that show a known deviation; declarations name them, and the checks of their clauses run them."""
