"""The oracle as an implementation: its expected side comes from the second road (`conformance.roads`)."""

from __future__ import annotations

from adapters.interface import Declaration
from oracle.acceptance import propose as propose
from oracle.acceptance import verify_greedy as verify_greedy
from oracle.acceptance import verify_random as verify_random
from oracle.acceptance import verify_sampled as verify_sampled
from oracle.acceptance import warp as warp

DECLARATION = Declaration(
    name="reference",
    version="0.1.0",
    conventions={
        "coin_scheme": "per_node",
        "frontier_coin": "inverse_cdf",
        "accept_operator": "<",
        "filter_order": "temperature,top_k,top_p,min_p",
        "top_k_ties": "exact",
    },
    cost={"verify_greedy": 5e-5, "verify_sampled": 8e-5, "verify_random": 8e-5, "warp": 3e-5, "propose": 3e-5},
    promises=("seed",),
    is_oracle=True,
)
