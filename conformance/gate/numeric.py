"""The numeric step of a release: oracle and second road on its own weights, and somebody's logits held against them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from adapters.interface import DTYPES
from conformance.drafter.asking import ACCUMULATOR, AGREED
from conformance.gate.verdict import FIT, NOT_JUDGED, UNFIT, Finding, Part
from conformance.gate.weights import Inputs, NoNotion, shown, small_case, some, stored_exactly
from conformance.roads import drafter as road
from conformance.roads.tape import Rounding
from oracle import drafter as oracle
from oracle.errors import BadInput
from oracle.manifest.opened import Release
from oracle.types import DrafterCase, DraftRollout, Ids, Rows

LIMIT_BOUND_BYTES = 2 * 2**30
"""What the derivatives of the judged logits by one weight matrix may take; needed where weights are cast."""
MOST_TOLD = 3


@dataclass(frozen=True, eq=False)
class Given:
    """Somebody's answer: logits [T + 1, Vd] and states [T + 1, d], made in `dtype` from these inputs."""

    inputs: Inputs
    answer: DraftRollout
    dtype: str


def step(release: Release, inputs: Callable[[], Inputs]) -> Part:
    """Whether the release's weights make finite logits, and both roads the same ones."""

    def judged() -> Part:
        rows = shown(release)
        logits = both_roads(small_case(release, inputs(), rows))
        if not np.isfinite(logits).all():
            return Part("step", UNFIT, "the weights make logits that are no numbers", [_odd(logits)])
        numbers = {"steps": len(logits), "logits": logits.shape[1], "largest_logit": float(np.abs(logits).max())}
        reason = f"{len(logits)} steps of {_logits(release, rows)}, two roads agree, the largest is "
        return Part("step", FIT, f"{reason}{numbers['largest_logit']:.3g}", numbers=numbers)

    return guarded("step", False, judged)


def both_roads(case: DrafterCase) -> Rows:
    """The logits of the oracle, [T + 1, n]. Raises `BadInput`, and `Disagreement` where the second road has others."""
    with np.errstate(over="ignore", invalid="ignore"):
        ours = oracle.draft_logits(case).logits
        apart = float(np.abs(ours - np.array([one.logits for one in road.rollout(case)])).max())
    if np.isfinite(ours).all() and not apart <= AGREED * (1 + float(np.abs(ours).max())):
        raise Disagreement(f"the suite is at fault: its two roads lie {apart:.3g} apart")
    return ours


class Disagreement(Exception):
    """The oracle and the second road give different numbers."""


def guarded(name: str, wanted: bool, judged: Callable[[], Part]) -> Part:
    """The part; where the step has no notion of the drafter, or cannot be computed, it is not judged, and says why."""
    try:
        return judged()
    except NoNotion as reason:
        return Part(name, NOT_JUDGED, f"the numeric step has no notion of {reason}", wanted=wanted)
    except BadInput as error:
        return Part(name, NOT_JUDGED, str(error), wanted=wanted)
    except Disagreement as fault:
        return Part(name, NOT_JUDGED, str(fault), wanted=True)
    except MemoryError:
        return Part(name, NOT_JUDGED, "memory is too small for the drafter's weights in float64", wanted=wanted)


def against(name: str, release: Release, given: Given, whose: str) -> Part:
    """Whether an answer lies within what its dtype may round; each step is judged by the states that it fed back.

    Raises `NoNotion`, `BadInput` and `Disagreement`.
    """
    rows = shown(release)
    case = small_case(release, given.inputs, rows)
    both_roads(case)
    if wrong := _malformed(given.answer, len(case.rollout_tokens) + 1, _sizes(release, rows)):
        return Part(name, UNFIT, f"{whose} are not those of this drafter", [wrong], wanted=True)
    exact = stored_exactly(release, given.dtype)
    _check_memory(case.weights.values(), len(rows), exact)
    rounding = Rounding(DTYPES[given.dtype], DTYPES[ACCUMULATOR.get(given.dtype, given.dtype)])
    right = road.rollout(case, rounding, given.answer.states, exact)
    found = given.answer.logits[:, rows]
    expected, off = (np.array([getattr(one, part) for one in right]) for part in ("logits", "logits_off"))
    entries = some(given.answer.states.shape[1])
    states, states_off = (
        np.array(one) for one in zip(*((s.state[entries], s.state_off_at(entries.tolist())) for s in right))
    )
    distance = np.abs(found - expected)
    numbers = {
        "steps": len(found),
        "logits": len(rows),
        "largest_distance": float(distance.max()),
        "largest_bound": float(off.max()),
    }
    findings = [
        *_beyond("logits", found, expected, off, rows, given.dtype),
        *_beyond("states", given.answer.states[:, entries], states, states_off, entries, given.dtype),
    ]
    words = f"{len(found)} steps of {_logits(release, rows)}, made in {given.dtype}"
    if findings:
        return Part(name, UNFIT, f"{whose} are not those of this drafter: {words}", findings, True, numbers)
    if bool((np.abs(expected - expected.mean(axis=1, keepdims=True)) <= off).all()):
        reason = f"{given.dtype} may move logits by {off.max():.2g}, as far as they lie apart: {words}"
        return Part(name, NOT_JUDGED, reason, (), True, numbers)
    reason = f"{words}, at most {distance.max():.2g} off; rounding explains up to {off.max():.2g}"
    return Part(name, FIT, reason, (), True, numbers)


def _sizes(release: Release, rows: Ids) -> tuple[int, int]:
    head = release.own_head or release.target_head
    if head is None:
        raise BadInput("head", (), "is the drafter's own or the target's", "missing")
    return head.shape[0], head.shape[1]


def _malformed(answer: DraftRollout, steps: int, sizes: tuple[int, int]) -> Finding | None:
    for name, width in zip(("logits", "states"), sizes):
        values = getattr(answer, name)
        if values.shape != (steps, width):
            return Finding("", name, f"has shape {list(values.shape)}, this drafter makes {[steps, width]}")
        if not np.isfinite(values).all():
            return _odd(values, name)
    return None


def _odd(values: Rows, name: str = "logits") -> Finding:
    i, j = (int(place) for place in np.argwhere(~np.isfinite(values))[0])
    return Finding("", f"{name}[{i}][{j}]", f"is {values[i, j]}: the argmax of what is no number is a token, too")


def _beyond(name: str, found: Rows, expected: Rows, off: Rows, entries: Ids, dtype: str) -> list[Finding]:
    """The first entries that rounding does not explain, and how many there are."""
    places = np.argwhere(~(np.abs(found - expected) <= off))
    return [
        Finding(
            "",
            f"{name}[{i}][{int(entries[j])}]",
            f"is {found[i, j]:.9g}, the weights give {expected[i, j]:.9g}, {dtype} allows ±{off[i, j]:.2g}; "
            f"{len(places)} of {found.size} are off: drafts are others than in training",
        )
        for i, j in places[:MOST_TOLD].tolist()
    ]


def _check_memory(weights: Iterable[Rows], outputs: int, exact: bool) -> None:
    largest = max(one.size for one in weights)
    if not exact and 8 * outputs * largest > LIMIT_BOUND_BYTES:
        raise NoNotion(
            f"what a cast of weights this large does to {outputs} logits; in a dtype that holds the weights exactly "
            "they can be judged"
        )


def _logits(release: Release, rows: Ids) -> str:
    count = _sizes(release, rows)[0]
    return f"{count} logits" if count == len(rows) else f"{len(rows)} of {count} logits"
