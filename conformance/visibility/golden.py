"""The golden vectors of visibility: graphs of every kind of row, the masks and attentions that show them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from conformance.fixtures import digits
from conformance.fixtures.flags import UNCHANGED
from conformance.fixtures.golden import Answer, Flag, Golden
from conformance.roads import visibility as road
from conformance.verdicts import HarnessError
from conformance.visibility.cases import (
    ALL_AT_ONCE,
    BOTH,
    BRIEF,
    CROWDED,
    DEEP,
    FAR,
    FULL,
    HOLE,
    LEFT,
    ONE_STEP,
    PACKED,
    REUSED,
    RIGHT,
    SHORT,
    SINGLE,
    SKIPS,
    SPARSE,
    poisoned,
    rollout,
    traced,
)
from oracle import visibility as oracle
from oracle.errors import BadInput
from oracle.types import Attended, AttentionCase, RolloutCase, RolloutMaskCase, VisibilityGraph

OWN = "rollout_position=anchor_plus_step"
SEGMENTS = "packing=segments"
FLAGS: Mapping[str, Flag] = {
    OWN: Flag("convention", "A node stands at the position of its anchor plus its step, where positions skip."),
    SEGMENTS: Flag("convention", "Several sequences may stand in one batch row, told apart by segment ids."),
    "packed": Flag(
        "fault",
        "Nodes of one sequence of a pack see another's, or exist across its end.",
        ("https://github.com/vllm-project/speculators/pull/897",),
    ),
    "cached": Flag(
        "fault",
        "A mask that is kept for one length or number of steps is handed out for another.",
        ("https://github.com/NVIDIA/Model-Optimizer/pull/1343",),
    ),
    "padded": Flag(
        "fault",
        "Padding is seen, or shifts what is.",
        ("https://github.com/SafeAILab/EAGLE/issues/317",),
    ),
}


def _of(operation: str, told: str, given: Any, clauses: Sequence[int], flags: Sequence[str]) -> Golden:
    parameter = "cases" if operation == "rollout_attention" else "case"
    numbered = tuple(f"VISIBILITY-{clause}" for clause in clauses)
    return Golden(operation, numbered, told, {parameter: given}, tuple(flags))


def graph(told: str, case: RolloutCase, *clauses: int, flags: Sequence[str] = ()) -> Golden:
    return _of("rollout_visibility", told, case, clauses, [*_skipping(case), *_packing(case), *flags])


def mask(told: str, case: RolloutCase, anchor: str, *clauses: int, flags: Sequence[str] = ()) -> Golden:
    return _of("rollout_mask", told, RolloutMaskCase(case, anchor), clauses, [*_packing(case), *flags])


def attention(told: str, cases: Sequence[AttentionCase], *clauses: int, flags: Sequence[str] = ()) -> Golden:
    packing = sorted({flag for case in cases for flag in _packing(case.rollout)})
    return _of("rollout_attention", told, list(cases), clauses, [*packing, *flags])


def refused(operation: str, told: str, case: RolloutCase, clause: int) -> Golden:
    given: Any = case
    if operation == "rollout_mask":
        given = RolloutMaskCase(case, "start")
    if operation == "rollout_attention":
        given = [dataclasses.replace(narrow(rollout(case.length, max(case.steps, 1))), rollout=case)]
    return _of(operation, told, given, [clause], ["hostile"])


def narrow(case: RolloutCase, seed: int = 0) -> AttentionCase:
    """Values of two entries, every one another."""
    value = np.arange(2 * case.steps * case.length, dtype=np.float64) * 0.625 + seed
    return AttentionCase(case, value.reshape(case.steps, case.length, 2))


def _packing(case: RolloutCase) -> list[str]:
    """Segments matter where valid addresses have several."""
    return [SEGMENTS] if len(set(np.asarray(case.segment)[np.asarray(case.valid, dtype=bool)].tolist())) > 1 else []


def _skipping(case: RolloutCase) -> list[str]:
    """Where positions skip, those of anchor plus step are not those of the addresses."""
    right, own = road.graph(case), road.graph(case, "own")
    return [OWN] if right.position.tolist() != own.position.tolist() else []


PLAIN_RIGHT = rollout(4, 2, position=[0, 1, 2, 3])
HALVES: Any = np.array([0.5, 1.5, 2.5, 3.5])
WRONG = (
    ("Positions that stand still are refused", rollout(3, 2, position=[0, 0, 1]), 901),
    ("Positions that fall are refused", rollout(3, 2, position=[2, 1, 3]), 901),
    ("A position met again behind a hole is refused", rollout(4, 1, valid=[1, 1, 0, 1], position=[0, 2, 9, 2]), 901),
    ("Fewer flags than addresses are refused", dataclasses.replace(PLAIN_RIGHT, valid=PLAIN_RIGHT.valid[:3]), 902),
    ("Segments that are no integers are refused", dataclasses.replace(PLAIN_RIGHT, segment=HALVES), 902),
    ("More positions than addresses are refused", dataclasses.replace(PLAIN_RIGHT, position=np.arange(5)), 902),
    ("A rollout of no step is refused", rollout(4, 0), 903),
    ("A rollout of fewer than no steps is refused", rollout(4, -1), 903),
)

GRAPHS = (
    graph("Five tokens, three steps", FULL, 102, 103, 201, 401, 402, 403, 501),
    graph("Five tokens, two steps, after three were asked for", rollout(5, 2), 101, 201, flags=["cached"]),
    graph("Four tokens, three steps, after five were asked for", rollout(4, 3), 101, 201, flags=["cached"]),
    graph("One step is causal", ONE_STEP, 301, 401, 402),
    graph("Seven steps of ten tokens", DEEP, 201, 302, 501, 502, 503),
    graph("More steps than tokens", SHORT, 201),
    graph("One token has no next one, and no node", SINGLE, 104, flags=["empty"]),
    graph("Positions that skip", SKIPS, 301, 302),
    graph("Padding on the right", RIGHT, 202, 606, flags=["padded"]),
    graph("Padding on the left", LEFT, 202, 301, 604, flags=["padded"]),
    graph("Padding on both sides", BOTH, 202, 302, flags=["padded"]),
    graph("A token missing in the middle", HOLE, 202, 603),
    graph("Tokens without a next one", SPARSE, 104, 202, flags=["empty"]),
    graph("No token at all", rollout(0, 3), 104, flags=["empty"]),
    graph("Nothing but padding", rollout(4, 3, valid=[0, 0, 0, 0]), 104, flags=["empty", "padded"]),
    graph("Two sequences in one row", PACKED, 203, 601, 602, flags=["packed"]),
    graph("Four sequences, one of a single token", CROWDED, 203, 601, 602, flags=["packed"]),
    graph("Segments that are one where ids are cut, and far positions", FAR, 203, 301, flags=["large", "packed"]),
    graph("A segment that comes back is the same segment", REUSED, 603, flags=["packed"]),
    graph("A segment that comes back within the reach of one node", BRIEF, 203, 603, flags=["packed"]),
    graph("Padding, two segments, a hole, and a segment that comes back", ALL_AT_ONCE, 604, flags=["packed", "padded"]),
    graph("Foreign segments and wild positions at invalid addresses", poisoned(HOLE), 605, flags=["poison"]),
    graph("Wild values in padding on the left", poisoned(LEFT), 605, flags=["poison", "padded"]),
    graph(
        "The case is left as it was",
        dataclasses.replace(RIGHT, position=np.arange(7)),
        105,
        flags=[UNCHANGED, "padded"],
    ),
    *(refused("rollout_visibility", *wrong) for wrong in WRONG),
)

MASKS = (
    mask("Five tokens, three steps, by their anchors", FULL, "start", 102, 701, 702),
    mask("Five tokens, three steps, by their addresses", FULL, "absolute", 701, 702),
    mask("Five tokens, two steps, by their anchors", rollout(5, 2), "start", 101, flags=["cached"]),
    mask("Four tokens, three steps, by their anchors", rollout(4, 3), "start", 101, flags=["cached"]),
    mask("Five tokens, two steps, by their addresses", rollout(5, 2), "absolute", 101, flags=["cached"]),
    mask("Padding on the right has rows that see nothing", RIGHT, "start", 703, 606, flags=["padded"]),
    mask("Padding on the right, by addresses", RIGHT, "absolute", 703, 606, flags=["padded"]),
    mask("Padding on the left", LEFT, "start", 701, 703, flags=["padded"]),
    mask("Padding on the left, by addresses", LEFT, "absolute", 701, 703, flags=["padded"]),
    mask("Two sequences in one row", PACKED, "start", 701, 703, flags=["packed"]),
    mask("Two sequences in one row, by addresses", PACKED, "absolute", 701, 702, flags=["packed"]),
    mask("A segment that comes back", REUSED, "start", 701, flags=["packed"]),
    mask("A token missing in the middle, by addresses", HOLE, "absolute", 701, 703),
    mask("Six steps of six tokens", rollout(6, 6), "start", 701),
    mask("Nothing but padding", rollout(4, 3, valid=[0, 0, 0, 0]), "start", 104, 703, flags=["empty", "padded"]),
    mask("The case is left as it was", BOTH, "start", 105, flags=[UNCHANGED, "padded"]),
    *(refused("rollout_mask", *wrong) for wrong in WRONG[::3]),
    _of("rollout_mask", "An anchor without a meaning is refused", RolloutMaskCase(FULL, "middle"), [903], ["hostile"]),
)

NAN = float("nan")
THREE = [narrow(FULL), narrow(SHORT, 7), narrow(RIGHT, 90)]
POISONED = traced(rollout(5, 2, valid=[0, 1, 1, 1, 0]), elsewhere=NAN)
ATTENTIONS = (
    attention("Each value spells its node", [traced(rollout(4, 3))], 801, 802, 803, 804),
    attention("Values of two entries", [narrow(FULL)], 803, 804),
    attention("Padding on the right", [narrow(RIGHT)], 801, 802, flags=["padded"]),
    attention("Padding on the left", [narrow(LEFT)], 801, 802, flags=["padded"]),
    attention("Two sequences in one row", [narrow(PACKED)], 802, 804, flags=["packed"]),
    attention("Two members of one size", [narrow(FULL), narrow(FULL, 400)], 805, flags=["batch"]),
    attention("Three members of different sizes", THREE, 805, flags=["batch"]),
    attention(
        "Members with different padding",
        [
            narrow(rollout(5, 2, valid=[1, 1, 1, 0, 0])),
            narrow(rollout(5, 2), 60),
            narrow(rollout(5, 2, valid=[0, 1, 1, 1, 1])),
        ],
        805,
        flags=["batch", "padded"],
    ),
    attention(
        "NaN in padding is not read",
        [POISONED],
        806,
        flags=["poison"],
    ),
    attention(
        "NaN behind the last node is not read",
        [traced(rollout(4, 2), elsewhere=NAN)],
        806,
        flags=["poison"],
    ),
    attention("Nothing but padding", [narrow(rollout(3, 2, valid=[0, 0, 0]))], 104, flags=["empty", "padded"]),
    attention("The case is left as it was", [narrow(BOTH)], 105, flags=[UNCHANGED, "padded"]),
    *(refused("rollout_attention", *wrong) for wrong in WRONG[::2]),
    _of(
        "rollout_attention",
        "Values of fewer steps are refused",
        [dataclasses.replace(narrow(PLAIN_RIGHT), value=narrow(PLAIN_RIGHT).value[:1])],
        [902],
        ["hostile"],
    ),
)

GOLDEN: tuple[Golden, ...] = (*GRAPHS, *MASKS, *ATTENTIONS)
UNTOUCHED: Mapping[str, str] = {}
UNSHOWN: Mapping[str, str] = {
    "AbsoluteUndeclared": "what it hands out is right where it calls itself applicable; that this is not where it says "
    "is no matter of an answer",
}


# ---- answers


def answer(golden: Golden) -> Answer:
    """What every road says. Raises `HarnessError` where they disagree."""
    (given,) = golden.arguments.values()
    if "hostile" in golden.flags:
        try:
            getattr(oracle, golden.operation)(given)
        except BadInput as error:
            return Answer(error.field, ("oracle", "by hand"), "refusal")
        raise HarnessError("the oracle answers a case that is to be refused")
    if golden.operation == "rollout_visibility":
        right, ours = road.graph(given), oracle.rollout_visibility(given)
        for name in vars(ours):
            _same(name, getattr(right, name), getattr(ours, name))
        return Answer(VisibilityGraph(**vars(right)), ("networkx", "pairs of numbers"))
    if golden.operation == "rollout_mask":
        _same("the mask", road.mask(given.rollout, given.row_anchor), oracle.rollout_mask(given))
        return Answer(road.mask(given.rollout, given.row_anchor), ("networkx", "pairs of numbers"))
    return _attended(given)


def _attended(cases: Sequence[AttentionCase]) -> Answer:
    """Means of what is seen, as exact rationals rounded once.

    A softmax of n equal scores and the sum of n products round each weight n + 1 times, each product once and the sum
    n times, of numbers that are no larger than the largest value: 2n + 16 of it, exponentials and quotients included.
    """
    from fractions import Fraction

    right: list[Attended] = []
    most, scale = 1, 1.0
    for case, ours in zip(cases, oracle.rollout_attention(cases)):
        told = road.graph(case.rollout)
        nodes = list(zip(told.step.tolist(), told.anchor.tolist()))
        output = np.zeros((len(nodes), case.value.shape[2]))
        for i in range(len(nodes)):
            seen = [case.value[node] for node, visible in zip(nodes, told.visible[i].tolist()) if visible]
            most = max(most, len(seen))
            scale = max(scale, *(float(np.abs(value).max()) for value in seen))
            for entry in range(output.shape[1]):
                output[i, entry] = float(sum(Fraction(float(value[entry])) for value in seen) / len(seen))
        _same("step", told.step, ours.step)
        _same("anchor", told.anchor, ours.anchor)
        if output.shape != ours.output.shape or np.abs(output - ours.output).max(initial=0.0) > 2.0**-50 * scale * most:
            raise HarnessError("the oracle and the rationals disagree about an attention")
        right.append(Attended(told.step, told.anchor, output))
    bound = (2 * most + 16) * scale
    return Answer(right, ("oracle", "rationals"), "rounding", digits.limits(bound, [one.output for one in right]))


def _same(name: str, right: np.ndarray, ours: np.ndarray) -> None:
    if right.dtype != ours.dtype or not np.array_equal(right, ours):
        raise HarnessError(f"the oracle and the second road disagree about {name}")
