"""The golden vectors of drafters: tiny ones in which one thing matters, whole rollouts, and what is refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from conformance.drafter import shapes
from conformance.drafter.asking import OPERATION
from conformance.drafter.making import Sizes, make, name_of, weight
from conformance.fixtures.flags import UNCHANGED
from conformance.fixtures.golden import Flag, Golden
from oracle.types import DRAFTERS, FUSION_ORDERS, DrafterCase, Rows

EAGLE1, EAGLE3, PROJECTED = DRAFTERS
WORDS: Mapping[str, str] = {EAGLE1: "EAGLE-1", EAGLE3: "EAGLE-3", PROJECTED: "EAGLE-3, projected"}
TINY = Sizes(4, 4, 2, 4, 3, 6, 5)
"""Heads are wider than hidden / heads, two of them share keys, and the draft's vocabulary is its own."""
PLAIN = Sizes(8, 2, 1, 0, 3, 6, 6)
"""head_dim is not given."""
SKIPS = (3, 4, 7, 19)
SIX = 6
"""Tokens of a long rollout: more than drafters are often unrolled."""
_GITHUB = "https://github.com/"
FLAGS: Mapping[str, Flag] = {
    **{
        f"fusion_order={order}": Flag("convention", "In EAGLE-1 embedding and feature are fused in this order.")
        for order in FUSION_ORDERS
    },
    "layer addresses": Flag(
        "fault",
        "Each of the three layers is addressed by the number of the next one.",
        (f"{_GITHUB}SafeAILab/EAGLE/issues/239",),
    ),
    "rotary layout": Flag(
        "fault",
        "Neighbouring entries of a head turn together, not entry i with entry i + width / 2.",
        (f"{_GITHUB}NVIDIA/TensorRT-LLM/issues/19036",),
    ),
    "own head": Flag(
        "fault",
        "The head or the embeddings of the target stand for those of the draft.",
        (f"{_GITHUB}sgl-project/sglang/issues/27908",),
    ),
    "features of another drafter": Flag(
        "hostile",
        "Features of one layer are repeated for three, or cut.",
        (f"{_GITHUB}sgl-project/sglang/issues/21272",),
    ),
    "nan is read": Flag(
        "hostile",
        "NaN is read and becomes a finite logit.",
        (f"{_GITHUB}NVIDIA/TensorRT-LLM/issues/5146",),
    ),
    "long rollout": Flag("edge", "Room is written down for a few rollout tokens."),
}


def of(case: DrafterCase, description: str, *clauses: int, flags: Iterable[str] = ()) -> Golden:
    order = (f"fusion_order={case.config['fusion_order']}",) if case.variant == EAGLE1 else ()
    form = (101, 102) if UNCHANGED in flags else ()
    names = tuple(f"DRAFTER-{clause}" for clause in sorted({*form, *clauses}))
    return Golden(OPERATION, names, f"{WORDS[case.variant]}: {description}", {"case": case}, (*order, *flags))


def tiny(variant: str, seed: int, rows: int = 3, rollout: int = 0, **fields: object) -> DrafterCase:
    """A drafter with all of its parts at work, whose positions skip."""
    settings = {"positions": SKIPS[:rows], "theta": 500.0, **fields}
    return make(variant, TINY, seed, rows, rollout, **settings)  # type: ignore[arg-type]


Shape = Callable[[DrafterCase], DrafterCase]


def _usual(shape: Shape) -> Shape:
    """The shape with the usual rotary base: other bases are a clause of their own, and hide no other one."""
    return lambda case: shape(shapes.whole(case))


_ONE: tuple[tuple[Shape, tuple[str, ...], int, str, tuple[str, ...]], ...] = (
    (shapes.residual, (EAGLE1, EAGLE3), 201, "the fused row alone is the state", ()),
    (shapes.own_feature, (EAGLE1, EAGLE3), 301, "rows differ in their features alone", ()),
    (shapes.own_token, (EAGLE1,), 302, "rows differ in their tokens alone", ()),
    (shapes.fused, (EAGLE1,), 303, "the fusion alone, embedding first", ()),
    (shapes.fused, (EAGLE3,), 304, "the fusion of three layers alone", ("layer addresses",)),
    (shapes.norm_of_the_embedding, (EAGLE3,), 401, "the value of one normed embedding", ()),
    (shapes.values_of_one_row, (EAGLE1,), 402, "the value of one row that is not normed", ()),
    (shapes.values_of_one_row, (EAGLE3,), 403, "the value of one normed pair", ()),
    (shapes.values_of_one_row, (PROJECTED,), 404, "the value of one normed pair behind its projection", ()),
    (shapes.seen_rows, (EAGLE1, EAGLE3), 501, "the mean of the values of three rows", ()),
    (shapes.read_tokens, (EAGLE3,), 502, "rows differ in their tokens, and their values are averaged", ()),
    (shapes.shared_values, (EAGLE1, EAGLE3), 503, "two groups of heads have values of their own", ()),
    (_usual(shapes.attention), (EAGLE1, EAGLE3), 504, "sharp scores at positions that skip", ()),
    (shapes.unturned, (EAGLE1, EAGLE3), 505, "rows at one position, so that nothing turns against anything", ()),
    (shapes.first_pairs, (EAGLE1, EAGLE3), 506, "the entries 0 and width / 2 of a head alone turn", ("rotary layout",)),
    (shapes.attention, (EAGLE1, EAGLE3), 507, "sharp scores, and a base of 500", ()),
    (shapes.unit_state, (EAGLE1,), 601, "the feed-forward part of a row that no norm changes", ()),
    (shapes.headed, (EAGLE1, EAGLE3), 701, "the head of a row that no norm changes", ("own head",)),
    (shapes.mapped, (EAGLE3,), 702, "a map to the target's vocabulary lies beside the weights", ()),
    (shapes.unit_rows, (EAGLE3,), 703, "the head of three rows that no norm changes", ()),
    (shapes.one_step, (EAGLE1, EAGLE3, PROJECTED), 704, "a whole step", ()),
)
_ROLLED: tuple[tuple[Shape, tuple[str, ...], int, str], ...] = (
    (shapes.fed_back, (EAGLE1, EAGLE3), 901, "states that are fed back, and nothing is added"),
    (shapes.fused_again, (EAGLE3,), 902, "states that are fed back past the fusion"),
    (shapes.rollout_seen, (EAGLE1, EAGLE3), 903, "rollout rows see the mean of the values before them"),
    (shapes.rollout_positions, (EAGLE3,), 904, "rollout rows attend by their positions"),
)


def _right() -> Iterator[Golden]:
    for i, (shape, variants, clause, words, flags) in enumerate(_ONE):
        for j, variant in enumerate(variants):
            more = (UNCHANGED,) if clause == 704 else ()
            clauses = (602, 704) if clause == 704 else (clause,)
            yield of(shape(tiny(variant, 100 + 10 * i + j)), words, *clauses, flags=(*flags, *more))
    swapped = shapes.fused(tiny(EAGLE1, 301, order="feature_first"))
    yield of(swapped, "the fusion alone, feature first", 303)
    for variant in (EAGLE1, EAGLE3):
        yield of(shapes.bare(tiny(variant, 310, bias=True)), "the fusion with its bias", 305)
    for part, words in (
        ("k_proj", "keys"),
        ("v_proj", "values"),
        ("down_proj", "what is fed forward"),
        ("lm_head", "logits"),
    ):
        variant = EAGLE3 if part == "v_proj" else EAGLE1
        yield of(shapes.biased(tiny(variant, 320), part), f"{words} with a bias", 801)
    narrow = make(EAGLE3, PLAIN, 330, 2, 1, 1e-5, positions=(41, 43))
    yield of(narrow, "one group of keys, and head_dim is not given", 503, 505, 905)
    for i, (shape, variants, clause, words) in enumerate(_ROLLED):
        for j, variant in enumerate(variants):
            yield of(shape(tiny(variant, 400 + 10 * i + j, 2, 2)), words, clause)
    for i, variant in enumerate(DRAFTERS):
        case = shapes.whole(tiny(variant, 500 + i, 3, SIX if variant != PROJECTED else 2, epsilon=1e-5))
        flags = ("long rollout",) if variant != PROJECTED else ()
        yield of(case, f"a whole rollout of {len(case.rollout_tokens)} tokens", 901, 903, 904, 905, flags=flags)


def _refused() -> Iterator[Golden]:
    one, three = tiny(EAGLE1, 600, 2, 1), tiny(EAGLE3, 601, 2, 1)

    def weighed(case: DrafterCase, part: str, values: Rows | None) -> DrafterCase:
        others = {name: held for name, held in case.weights.items() if name != name_of(case, part)}
        more = {} if values is None else {name_of(case, part): values}
        return dataclasses.replace(case, weights={**others, **more})

    hostile = ("hostile",)
    yield of(weighed(three, "lm_head", None), "the head is missing", 1001, flags=(*hostile, "own head"))
    wide = np.concatenate([weight(three, "lm_head")] * 2, axis=1)
    yield of(weighed(three, "lm_head", wide), "the head is as wide as two rows", 1001, flags=(*hostile, "own head"))
    other = ("features of another drafter",)
    single = dataclasses.replace(three, features=three.features[:, :4])
    yield of(single, "features of one layer stand for three", 1002, flags=other)
    tripled = dataclasses.replace(one, features=np.tile(one.features, (1, 3)))
    yield of(tripled, "features of three layers stand for one", 1002, flags=other)
    fewer = dataclasses.replace(three, features=three.features[:-1])
    yield of(fewer, "a token has no feature", 1002, flags=hostile)
    yield of(
        dataclasses.replace(one, tokens=np.array([1, 6])), "a token is one beyond the vocabulary", 1003, flags=hostile
    )
    before = dataclasses.replace(three, rollout_tokens=np.array([-1]))
    yield of(before, "a rollout token is −1", 1003, flags=hostile)
    features, values = three.features.copy(), weight(one, "v_proj").copy()
    features[:, 0], values[0, 0] = np.nan, np.nan
    yield of(dataclasses.replace(three, features=features), "features hold NaN", 1004, flags=("nan is read",))
    yield of(weighed(one, "v_proj", values), "a value's weight is NaN", 1004, flags=("nan is read",))


GOLDEN: tuple[Golden, ...] = (*_right(), *_refused())
