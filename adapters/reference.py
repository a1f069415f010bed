"""The oracle as an implementation: its expected side comes from the second road (`conformance.roads`).

`adapters.reference` spends a coin a node; `adapters.reference:per_parent`, `:sample_and_match` and `:block`
verify with the oracle's other coin schemes; `:paged_1`, `:paged_4` and `:paged_16` publish in blocks of slots.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

from adapters.interface import Declaration, Engine, NotApplicable
from adapters.paged import paged_1 as paged_1
from adapters.paged import paged_4 as paged_4
from adapters.paged import paged_16 as paged_16
from oracle import acceptance, paged
from oracle.acceptance import propose as propose
from oracle.acceptance import verify_greedy as verify_greedy
from oracle.acceptance import verify_random as verify_random
from oracle.acceptance import verify_sampled as verify_sampled
from oracle.acceptance import warp as warp
from oracle.decode import DRAFT_LENGTH, LONGEST, VOCABULARY
from oracle.decode import generate as generate
from oracle.decode import next_law as next_law
from oracle.drafter import draft_logits as draft_logits
from oracle.losses import draft_to_target as draft_to_target
from oracle.losses import eagle1_loss as eagle1_loss
from oracle.losses import feature_regression as feature_regression
from oracle.losses import hass_loss as hass_loss
from oracle.losses import rollout_loss as rollout_loss
from oracle.losses import soft_cross_entropy as soft_cross_entropy
from oracle.losses import topk_distillation as topk_distillation
from oracle.manifest.release import check_release as check_release
from oracle.masks import tree_mask as tree_mask
from oracle.metrics import summarise_rounds as summarise_rounds
from oracle.noise import feature_noise as feature_noise
from oracle.noise import noisy_sample as noisy_sample
from oracle.publish import publish as publish
from oracle.rows import gather_rows as gather_rows
from oracle.rows import hard_rows as hard_rows
from oracle.rows import rollout_rows as rollout_rows
from oracle.rows import soft_rows as soft_rows
from oracle.rows import supervision_at_source as supervision_at_source
from oracle.training import state_gradient as state_gradient
from oracle.training import training_step as training_step
from oracle.tree import draft_tree as draft_tree
from oracle.tree import flatten_tree as flatten_tree
from oracle.tree import grow_tree as grow_tree
from oracle.tree import select_nodes as select_nodes
from oracle.tree import tree_visibility as tree_visibility
from oracle.types import Coins, CommittedState, Decision, PublishCase, VerifyCase
from oracle.visibility import rollout_attention as rollout_attention
from oracle.visibility import rollout_mask as rollout_mask
from oracle.visibility import rollout_visibility as rollout_visibility

DECLARATION = Declaration(
    name="reference",
    version="0.1.0",
    conventions={
        "coin_scheme": "per_node",
        "frontier_coin": "inverse_cdf",
        "accept_operator": "<",
        "filter_order": "temperature,top_k,top_p,min_p",
        "top_k_ties": "exact",
        "noise_amplitude": "paper",
    },
    cost={
        **{"verify_greedy": 5e-5, "verify_sampled": 8e-5, "verify_random": 8e-5, "warp": 3e-5, "propose": 3e-5},
        **dict.fromkeys(("soft_rows", "hard_rows", "supervision_at_source", "gather_rows", "rollout_rows"), 2e-4),
        **dict.fromkeys(("feature_regression", "soft_cross_entropy", "eagle1_loss", "topk_distillation"), 3e-4),
        **{"hass_loss": 1e-3, "rollout_loss": 5e-4, "draft_to_target": 3e-5, "state_gradient": 2e-5},
        **{"training_step": 3e-3, "feature_noise": 5e-5, "noisy_sample": 1e-4},
        **{"grow_tree": 2e-4, "select_nodes": 1e-4, "flatten_tree": 3e-4, "tree_visibility": 5e-5},
        **{"tree_mask": 1e-4, "draft_tree": 5e-4, "rollout_visibility": 1e-3},
        **{"publish": 1e-4, "interrupted_publish": 1e-3, "check_release": 5e-3},
        **{"rollout_mask": 1.5e-3, "rollout_attention": 1.5e-3, "summarise_rounds": 5e-5},
        **{"generate": 1.5e-3, "next_law": 1e-4, "draft_logits": 2e-3},
    },
    promises=("seed", "request_independent"),
    is_oracle=True,
    engine=Engine(VOCABULARY, LONGEST, DRAFT_LENGTH, roundings=2, scale=20.0),
)


def interrupted_publish(cases: Sequence[PublishCase], step: int) -> list[CommittedState] | None:
    """Through paged storage, with blocks of four slots: the flat oracle stores nothing that a failure could leave."""
    return paged.interrupted_publish(cases, step, 4)


class _Scheme:
    """The oracle's verifiers with the coins of another scheme."""

    DECLARATION: ClassVar[Declaration]
    scheme: ClassVar[str]
    chains_alone: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        cls.scheme = cls.__name__
        conventions = {"coin_scheme": cls.scheme, "frontier_coin": "inverse_cdf"}
        cls.DECLARATION = dataclasses.replace(DECLARATION, name=f"reference, {cls.scheme}", conventions=conventions)

    @classmethod
    def verify_sampled(cls, cases: Sequence[VerifyCase], coins: Sequence[Coins]) -> list[Decision]:
        cls._check(cases)
        return acceptance.verify_sampled(cases, coins, cls.scheme)

    @classmethod
    def verify_random(cls, cases: Sequence[VerifyCase], seed: int) -> list[Decision]:
        cls._check(cases)
        return acceptance.verify_random(cases, seed, cls.scheme)

    @classmethod
    def _check(cls, cases: Sequence[VerifyCase]) -> None:
        if cls.chains_alone and any(c.parent.tolist() != list(range(-1, len(c.parent) - 1)) for c in cases):
            raise NotApplicable("block verification decides chains")


class per_parent(_Scheme):
    """One coin a parent, cut into the target's masses of its children."""


class sample_and_match(_Scheme):
    """Draws the next token from the target and steps into the child that carries it."""


class block(_Scheme):
    """Accepts the longest prefix of a chain that passes its test."""

    chains_alone = True
