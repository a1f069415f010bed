"""AngelSlim's dynamic trees and their verification, `adapters.angelslim:serving`.

The code under test is `topK_genrate` of `Llama3Eagle3Drafter` behind a drafter made from a table (see
`adapters.topk_drafting`), `evaluate_posterior` (see `adapters.leaf_posterior`; it draws the frontier token itself) and
`tree_decoding`, which makes positions absolute, all of `angelslim.compressor.speculative`. Scores are float32. The leaf
table is that of greedy decoding. The code verifies one request at a time, so members run one after the other. `publish`
runs a round of its loop: see `adapters.angelslim_publish`. `draft_logits` is its numeric step: see
`adapters.angelslim_step`.

`_get_topk_tokens` hands out the log probabilities of the first row for all of the rows that are expanded, so no drafter
can make a given tree grow. Where a tree is given, the stand-in for the drafter picks its best tokens itself; parents,
mask, positions and leaf table are AngelSlim's as before.

Its packages are registered as bare paths, as `adapters.angelslim_engine` does it.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from typing import Any

import numpy as np

from adapters import angelslim_engine, angelslim_publish, angelslim_step, leaf_posterior, topk_drafting
from adapters import clone_features as shared
from adapters.interface import Arithmetic, Declaration, Deviation
from oracle.types import (
    Coins,
    CommittedState,
    Decision,
    DrafterCase,
    DraftRollout,
    DraftTreeCase,
    Flags,
    FlattenCase,
    FlatTree,
    Ids,
    MaskCase,
    PublishCase,
    VerifyCase,
)

_CODE = "https://github.com/Tencent/AngelSlim/blob/v0.5.0/angelslim/compressor/speculative"
_DRAFTER = f"{_CODE}/inference/models/eagle3/draft/base_model.py"


def _version() -> str:
    try:
        return importlib.metadata.version("angelslim")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


DECLARATION = Declaration(
    name="angelslim serving",
    version=_version(),
    links=(_DRAFTER, f"{_CODE}/utils/util.py#L169-L258"),
    conventions={
        "coin_scheme": "per_node",
        "frontier_coin": "inverse_cdf",
        "accept_operator": "<=",
        "draft_map": "offset",
        "root_in_verification": "yes",
        "draft_kv": "recomputed",
        "selection_order": "node",
    },
    arithmetic=Arithmetic(dtype="float32", coin_dtype="float32", via_logits=True),
    cost={
        "draft_tree": 1.6e-2,
        "flatten_tree": 2e-3,
        "tree_visibility": 2e-3,
        "tree_mask": 2e-3,
        "verify_greedy": 1.5e-4,
        "verify_sampled": 4e-4,
        "verify_random": 3e-4,
        "publish": 4e-3,
        "draft_logits": 1.2e-2,
    },
    generators=("python", "torch"),
    promises=("seed",),
    deviations=(
        Deviation(
            "TREE-102",
            "with total_tokens 1 the leaf table is read off an empty list of parents",
            link=f"{_DRAFTER}#L446-L457",
        ),
        *(
            Deviation(
                clause,
                "_get_topk_tokens returns topk.values[0], so every expanded node's children get the first one's scores",
                link=f"{_DRAFTER}#L297-L302",
            )
            for clause in ("TREE-702", "TREE-704", "TREE-706")
        ),
        Deviation(
            "TREE-705",
            "torch.topk may keep a child that ties with its parent and drop the parent; searchsorted gives it another",
            link=f"{_DRAFTER}#L387-L413",
        ),
        Deviation(
            "TREE-711",
            "where the vocabularies have one size d2t is not read, so a permutation is taken for the identity",
            link=f"{_DRAFTER}#L354-L359",
        ),
        Deviation(
            "TREE-801", "the drafter's law is not looked at: NaN is ranked as a score", link=f"{_DRAFTER}#L297-L302"
        ),
        Deviation("TREE-802", "the drafter's law is not looked at", link=f"{_DRAFTER}#L297-L302"),
        Deviation(
            "ACCEPTANCE-108",
            "the argmax of a row with NaN is a token, and is published",
            witness="nan_at_the_root",
            fixtures=("4164c5401c40", "54112da8b1ca"),
        ),
        *angelslim_publish.DEVIATIONS,
        *angelslim_step.SERVING_DEVIATIONS,
    ),
)


def draft_tree(cases: Sequence[DraftTreeCase]) -> list[FlatTree]:
    """`topK_genrate` over each case's table."""
    return topk_drafting.draft_tree(_drafting(), cases, "float32")


def flatten_tree(cases: Sequence[FlattenCase]) -> list[FlatTree]:
    """`topK_genrate` over a table from which exactly the tree grows."""
    return topk_drafting.flatten_tree(_drafting(), cases)


def tree_visibility(parent: Ids) -> Flags:
    """`tree_mask` of a tree of this shape, without the root."""
    return topk_drafting.tree_visibility(_drafting(), parent)


def tree_mask(cases: Sequence[MaskCase]) -> list[np.ndarray]:
    """`tree_mask` of trees of these shapes."""
    return topk_drafting.tree_mask(_drafting(), cases)


def verify_greedy(cases: Sequence[VerifyCase]) -> list[Decision]:
    """`evaluate_posterior` without a logits processor."""
    return leaf_posterior.verify_greedy(_posterior(), cases)


def verify_random(cases: Sequence[VerifyCase], seed: int) -> list[Decision]:
    """`evaluate_posterior` at temperature 1."""
    return leaf_posterior.verify_random(_posterior(), cases, seed)


def verify_sampled(cases: Sequence[VerifyCase], coins: Sequence[Coins]) -> list[Decision]:
    """The same, with the coins given."""
    return leaf_posterior.verify_sampled(_posterior(), cases, coins)


def publish(cases: Sequence[PublishCase]) -> list[CommittedState]:
    """`eagle_generate`, a round of each request: see `adapters.angelslim_publish`."""
    return [angelslim_publish.publish(case) for case in cases]


def draft_logits(case: DrafterCase) -> DraftRollout:
    """`Llama3Eagle3Drafter`: see `adapters.angelslim_step`."""
    return angelslim_step.served(case)


def _drafting() -> topk_drafting.Drafting:
    package = angelslim_engine.angelslim()
    torch = package.torch

    def make(wanted: topk_drafting.Wanted) -> Any:
        config = shared.tiny_config(wanted.target_size, 2, draft_vocab_size=wanted.draft_size)
        with torch.random.fork_rng(devices=[]):
            model = package.drafter.Llama3Eagle3Drafter(
                config, total_tokens=wanted.nodes + 1, depth=wanted.depth - 1, top_k=wanted.width
            )
        if wanted.offsets is not None:
            model.d2t.copy_(torch.from_numpy(np.array(wanted.offsets)))
        return model

    def shape(model: Any) -> None:
        first = [True]

        def best(hidden: Any) -> Any:
            found = torch.topk(model.lm_head(hidden), model.top_k, dim=-1)
            return found.indices, found.values[0] if first and first.pop() else found.values

        model._get_topk_tokens = best

    names = vars(package.functions)
    return topk_drafting.Drafting(
        torch, make, (None,), lambda model, states, ids: model.topK_genrate(states, ids), names, shape
    )


def _posterior() -> leaf_posterior.Posterior:
    package = angelslim_engine.angelslim()
    return leaf_posterior.Posterior(package.torch, vars(package.functions), drawn=True)
