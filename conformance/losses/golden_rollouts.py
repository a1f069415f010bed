"""The golden vectors of rollouts: their losses, their draft vocabularies, and what their gradients reach."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from conformance.fixtures.flags import UNCHANGED
from conformance.fixtures.golden import Golden
from conformance.losses import masked
from conformance.losses.cases import (
    EDGE_LOGITS,
    NO_MAPS,
    SEPARATING,
    SMALL,
    beside_an_empty_step,
    broken,
    empty_laws,
    impossible_behind_a_zero,
    masked_rollouts,
    tied_gate,
)
from conformance.losses.conventions import Settled, fields
from conformance.losses.golden_cases import edge, everywhere, plain, single
from conformance.losses.large import STEPS, long_rollout
from oracle.types import GRADIENTS, DraftMapCase, RolloutLossCase, StateGradientCase

RELEASED: Mapping[str, Settled] = {
    "over all rows": {"denominator": "rows"},
    "over the mask, without a gate, a decay of 0.9": {
        **{"denominator": "mask", "gate": "none", "denominator_epsilon": 1e-5, "step_decay": 0.9}
    },
    "a divergence over the mask, without a gate, no decay": {
        **{"denominator": "mask", "gate": "none", "divergence": "kl", "denominator_epsilon": 1e-5, "step_decay": 1.0}
    },
}
"""How released trainers count, in words → their conventions: EAGLE-3's own, SpecForge and AngelSlim; ModelOpt;
speculators."""


def _released() -> Iterator[Golden]:
    name, clauses = "rollout_loss", (701, 702, 703, 704, 705, 706, 710)
    for words, given in RELEASED.items():
        more = (707, 709) if "divergence" in given else (707,) if "gate" in given else ()
        turned = dataclasses.replace(SEPARATING, **fields(given, 3, {}))
        if "gate" in given:  # the other one is among the cases of each convention
            yield single(name, turned, f"Three steps behind a map, {words}.", *clauses, *more)
        yield single(name, beside_an_empty_step(given), f"An empty step, {words}.", *clauses, *more, 708)
        poisoned = masked.poisoned(turned, name, 5)
        yield single(name, poisoned, f"Other rows hold NaN, {words}.", *clauses, *more, 901, flags=("poison",))
        yield single(name, long_rollout(given), f"Seven steps, {words}.", 701, 702, 710, flags=("many steps",))
        none, one = masked_rollouts(given)
        yield single(name, none, f"A token masked on both sides, {words}.", 303, 701, flags=("masked",))
        yield single(name, one, f"A token of the target is impossible, {words}.", 303, 701, flags=("masked",))


def _rollouts() -> Iterator[Golden]:
    name = "rollout_loss"
    step, whole = (701, 703, 704, 705, 706), (702, 710)

    def of(case: Any, words: str, *clauses: int, flags: Iterable[str] = ()) -> Golden:
        return single(name, case, words, *clauses, flags=flags)

    yield of(
        plain(name, 13, 3, 4, 1), "One vocabulary, two steps with masks of their own.", 701, *whole, flags=(UNCHANGED,)
    )
    told = {
        ("denominator", "supervised"): (706, "Behind a map and a gate, over the rows that count."),
        ("denominator", "mask"): (706, "Over the rows of the mask, those behind the gate as well."),
        ("denominator", "rows"): (706, "Over all rows."),
        ("restricted_target", "raw"): (704, "The target's mass on the draft vocabulary stays as it is."),
        ("gate", "none"): (705, "No gate: rows whose likeliest token is unknown to the drafter count."),
        ("divergence", "kl"): (709, "Cross-entropy less the entropy of the restricted target."),
        ("reduction", "mean"): (702, "The steps are summed by their weights, over their number."),
    }
    for (field, value), (clause, words) in told.items():
        flags = ("gated rows",) if field == "gate" else ("padding",) if field == "denominator" else ()
        one: Mapping[str, Any] = {field: value}
        yield of(dataclasses.replace(SEPARATING, **one), words, *step, *whole, clause, flags=flags)
    both = dataclasses.replace(SEPARATING, restricted_target="raw", divergence="kl", gate="none", denominator="mask")
    yield of(both, "A raw target, its divergence, no gate, the rows of the mask.", *step, *whole, 709)
    for weights, words in (
        ((1.0, 0.9, 0.9**2), "Steps decay by 0.9."),
        ((1.5, 0.0, 0.25), "Weights that are no powers, one of them 0."),
    ):
        yield of(dataclasses.replace(SEPARATING, step_weights=weights), words, *step, *whole)
    small = dataclasses.replace(SMALL, denominator_epsilon=1e-5)
    yield of(small, "An epsilon of 10⁻⁵ under a large loss.", 701, 707, 710)
    yield of(
        dataclasses.replace(SEPARATING, denominator_epsilon=0.5),
        "An epsilon in each of three steps.",
        *step,
        707,
        *whole,
    )
    yield of(long_rollout({}), "Seven steps with the released weights.", 701, *whole, flags=("many steps",))
    uneven = long_rollout({}, step_weights=(1.5, 0.75, 0.25, 2.0, 0.5, 1.25, 1.0)[:STEPS])
    yield of(uneven, "Seven steps with weights that go up and down.", 701, *whole, flags=("many steps",))
    for ids in ([0, 2], [1, 3], [2, 3]):
        words = f"Target logits are tied at the gate; draft tokens stand for {ids[0]} and {ids[1]}."
        yield of(tied_gate({}, ids), words, 703, 705, flags=("ties", "gated rows"))
    yield of(beside_an_empty_step({}), "The second step supervises no row.", *step, 708, flags=("nothing supervised",))
    for field, value in (("reduction", "mean"), ("denominator", "mask")):
        words = f"The second step supervises no row, and {field} is {value}."
        yield of(beside_an_empty_step({field: value}), words, *step, 708, flags=("nothing supervised",))
    yield of(impossible_behind_a_zero({}), "An infinite step of zero weight.", 702, 708, flags=("masked",))
    for case, words in zip(
        empty_laws({"gate": "none"}),
        ("No draft token is possible to the target in one row.", "A row masks every token."),
    ):
        yield of(case, words, 711, flags=("masked",))
    yield of(empty_laws({})[1], "A row masks every token, beside a gate.", 711, flags=("masked", "gated rows"))
    for case, words in zip(
        masked_rollouts({}), ("A token is masked on both sides.", "A token of the target is impossible in one step.")
    ):
        yield of(case, words, 303, 701, flags=("masked",))
    turned = masked.reordered(SEPARATING, 1).cases[1]
    yield of(turned, "The draft vocabulary in descending order.", *step, *whole, 906, flags=("order of the map",))
    equal = RolloutLossCase(
        SEPARATING.draft_logits,
        SEPARATING.draft_logits[:, ::-1],
        SEPARATING.supervise,
        draft_to_target=np.array([1, 0]),
    )
    yield of(equal, "A map of equal widths that exchanges two tokens.", 701, 906, flags=("order of the map",))
    wide = masked.widened(dataclasses.replace(SEPARATING, denominator="rows"), name, 6)
    yield of(wide, "All rows are counted, twenty of them.", *step, 905, flags=("padding",))
    yield from everywhere(name, (701, *whole))
    edges: Sequence[tuple[int, Mapping[str, Any]]] = (
        (0, {}),
        (2, {"divergence": "kl"}),
        (3, {}),
        (5, {"restricted_target": "raw"}),
        (1, {"restricted_target": "raw"}),
    )
    for i, asked in edges:
        draft, target = EDGE_LOGITS[i]
        case = RolloutLossCase(draft[None], target[None], np.ones((1, len(draft)), dtype=bool), **asked)
        yield edge(name, case, i, 701, 710)


def _maps() -> Iterator[Golden]:
    name = "draft_to_target"

    def of(ids: list[int], marked: int | None, convention: str) -> DraftMapCase:
        d2t = np.array(ids, dtype=np.int64) - (np.arange(len(ids)) if convention == "offset" else 0)
        t2d = None if marked is None else np.isin(np.arange(marked), ids)
        return DraftMapCase(d2t, t2d, convention)

    for convention in ("offset", "absolute"):
        worked = (
            (of([1, 3, 4], None, convention), "Three draft tokens, without marks.", 801, "offset map"),
            (of([0, 2, 5], 7, convention), "Three draft tokens, marked in a vocabulary of seven.", 801, "offset map"),
            (of([3, 1, 4], 6, convention), "A map that does not ascend.", 801, "order of the map"),
            (of([2, 0, 1], 3, convention), "Equal widths, another order.", 802, "order of the map"),
            (of([70_000, 3, 65_536], None, convention), "Ids beyond 16 bits.", 801, "large"),
        )
        for case, words, clause, flag in worked:
            yield single(name, case, f"{words[:-1]}: {convention}.", clause, flags=(flag,))
        told = (
            "two draft ids stand for one token",
            "and the token is marked",
            "an id leaves the vocabulary",
            "an id is negative",
            "another token is marked",
            "one token more is marked",
            "one token less is marked",
        )
        for entry, words in zip(NO_MAPS, told):
            case = broken(*entry, convention)
            yield single(name, case, f"No map, {convention}: {words}.", 803, flags=("hostile",))


def _states() -> Iterator[Golden]:
    for gradient in GRADIENTS:
        for steps in (1, 2, 3, 5):
            said = "flows" if gradient == "flows" else "is detached"
            words = f"{steps} step{'s' if steps > 1 else ''}, and the gradient {said}."
            yield single("state_gradient", StateGradientCase(steps, gradient), words, 1102)


ROLLOUTS: tuple[Golden, ...] = (*_rollouts(), *_released(), *_maps(), *_states())
