"""SafeAILab/EAGLE's dynamic trees and their verification, `adapters.eagle:serving` and `adapters.eagle:half`.

From a clone of yours, as in `adapters.eagle`: `topK_genrate` of `Model` in `eagle/model/cnets.py` behind a drafter made
from a table (see `adapters.topk_drafting`), `evaluate_posterior` in `eagle/model/utils.py` (see
`adapters.leaf_posterior`), and `tree_decoding` of the same file, which makes positions absolute. The leaf table is that
of greedy decoding. The code verifies one request at a time, so members run one after the other. `publish` runs a round
of its loop: see `adapters.eagle_publish`. `draft_logits` is its numeric step: see `adapters.eagle_step`.

`serving` scores in float32. `half` scores in float16, as the models that are served do, and only drafts: a child whose
log probability is lost in rounding ties with its parent, and the choice of nodes may keep the child alone.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from adapters import clone_features as shared
from adapters import eagle_publish, kv_tracers, leaf_posterior, topk_drafting
from adapters.clones import Clone
from adapters.eagle_step import draft_logits as draft_logits
from adapters.interface import Arithmetic, Declaration, Deviation
from oracle.types import (
    Coins,
    CommittedState,
    Decision,
    DraftTreeCase,
    Flags,
    FlattenCase,
    FlatTree,
    Ids,
    MaskCase,
    PublishCase,
    VerifyCase,
)

CLONE = Clone("EAGLE_CLONE", "https://github.com/SafeAILab/EAGLE", "eagle/model/cnets.py")
DRAFTER, FUNCTIONS, LOOP = "eagle/model/cnets.py", "eagle/model/utils.py", "eagle/model/ea_model.py"
_TREE = "https://github.com/SafeAILab/EAGLE/blob/cb7e0841fe0c206c6ed74a197ad5e2a1f13f5a2b/eagle"
_SCORES = f"{_TREE}/model/cnets.py#L705-L749"
_DRAFTING = (
    Deviation(
        "TREE-102",
        "with total_tokens 1 the leaf table is read off an empty list of parents: IndexError",
        link=f"{_TREE}/model/cnets.py#L800-L809",
    ),
    Deviation(
        "TREE-705",
        "torch.topk may keep a child that ties with its parent and drop the parent; searchsorted then gives it another",
        link=f"{_TREE}/model/cnets.py#L766-L776",
    ),
    Deviation(
        "TREE-711",
        "where the vocabularies have one size d2t is not read, so a permutation is taken for the identity",
        link=f"{_TREE}/model/cnets.py#L751-L755",
    ),
    Deviation("TREE-801", "the drafter's law is not looked at: NaN is ranked as a score", link=_SCORES),
    Deviation("TREE-802", "the drafter's law is not looked at", link=_SCORES),
)

DECLARATION = Declaration(
    name="SafeAILab/EAGLE serving",
    version=CLONE.revision(),
    links=(f"{_TREE}/model/cnets.py#L669-L827", f"{_TREE}/model/utils.py#L337-L415"),
    conventions={
        "coin_scheme": "per_node",
        "frontier_coin": "inverse_cdf",
        "accept_operator": "<=",
        "draft_map": "offset",
        "root_in_verification": "yes",
        "draft_kv": "recomputed",
        "selection_order": "node",
        "fusion_order": "embedding_first",
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
        "publish": 6e-3,
        "draft_logits": 1.5e-2,
    },
    generators=("python", "torch"),
    promises=("seed",),
    deviations=(
        *_DRAFTING,
        Deviation(
            "ACCEPTANCE-108",
            "the argmax of a row with NaN is a token, and is published",
            witness="nan_at_the_root",
            fixtures=("4164c5401c40", "54112da8b1ca"),
        ),
        *eagle_publish.DEVIATIONS,
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
    """`evaluate_posterior` at temperature 1, and `torch.multinomial` of what it returns."""
    return leaf_posterior.verify_random(_posterior(), cases, seed)


def verify_sampled(cases: Sequence[VerifyCase], coins: Sequence[Coins]) -> list[Decision]:
    """The same, with the coins given."""
    return leaf_posterior.verify_sampled(_posterior(), cases, coins)


def publish(cases: Sequence[PublishCase]) -> list[CommittedState]:
    """`eagenerate`, a round of each request: see `adapters.eagle_publish`."""
    return [eagle_publish.publish(case, _loop(), _drafter()) for case in cases]


class half:
    """Scores in float16."""

    DECLARATION = Declaration(
        name="SafeAILab/EAGLE serving, float16",
        version=CLONE.revision(),
        links=DECLARATION.links,
        conventions=DECLARATION.conventions,
        arithmetic=Arithmetic(dtype="float16", via_logits=True),
        cost={"draft_tree": 1.6e-2},
        deviations=_DRAFTING,
    )

    @staticmethod
    def draft_tree(cases: Sequence[DraftTreeCase]) -> list[FlatTree]:
        """`topK_genrate` over each case's table."""
        return topk_drafting.draft_tree(_drafting(), cases, "float16")


@cache
def _names() -> dict[str, Any]:
    """The functions of the clone, and what they refer to."""
    torch = shared.import_torch(CLONE)
    torch.set_num_threads(1)
    names = shared.model_names(torch) | {"random": random}
    from transformers.generation import logits_process

    names |= vars(logits_process)
    CLONE.source(DRAFTER).define(names)
    wanted = ("prepare_logits_processor", "tree_decoding", "evaluate_posterior")
    CLONE.source(FUNCTIONS).define(names, *wanted)
    return names


@cache
def _loop() -> dict[str, Any]:
    """The loop and what it calls."""
    names = {**_names(), "__name__": "loop"}
    CLONE.source(FUNCTIONS).define(names, "reset_tree_mode", "update_inference_inputs")
    CLONE.source(LOOP).define(names, "EaModel")
    return names


@cache
def _drafter() -> Any:
    """A drafter of two children a node."""
    size = kv_tracers.SMALL
    config = shared.tiny_config(size, size, draft_vocab_size=size)
    with _names()["torch"].random.fork_rng(devices=[]):
        model = _names()["Model"](config, total_tokens=3, depth=1, top_k=2, threshold=1.0)
    model.init_tree()
    return model


def _drafting() -> topk_drafting.Drafting:
    names = _names()
    torch = names["torch"]

    def make(wanted: topk_drafting.Wanted) -> Any:
        config = shared.tiny_config(wanted.target_size, 2, draft_vocab_size=wanted.draft_size)
        with torch.random.fork_rng(devices=[]):
            model = names["Model"](
                config, total_tokens=wanted.nodes + 1, depth=wanted.depth - 1, top_k=wanted.width, threshold=1.0
            )
        if wanted.offsets is not None:
            model.d2t.copy_(torch.from_numpy(np.array(wanted.offsets)))
        return model

    return topk_drafting.Drafting(
        torch,
        make,
        (),
        lambda model, states, ids: model.topK_genrate(states, ids, None, None),
        names,
    )


def _posterior() -> leaf_posterior.Posterior:
    names = _names()
    return leaf_posterior.Posterior(shared.import_torch(CLONE), names)
