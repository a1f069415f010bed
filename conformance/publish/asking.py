"""Asking an implementation to publish, and judging its states: form first, then field by field."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from conformance import compare
from conformance.check import Check
from conformance.compare import is_shown
from conformance.handout import copy
from conformance.publish import drawing
from conformance.publish.cases import Rounds
from conformance.roads import publish as road
from conformance.verdicts import ClauseViolation, HarnessError, Inapplicable
from oracle import publish as oracle
from oracle.types import FINISH_REASONS, NOT_SHOWN, CommittedState, PublishCase

FIELDS = tuple(field.name for field in dataclasses.fields(CommittedState))
VECTORS = {"prompt": "iu", "output": "iu", "kv": "fiu", "features": "fiu", "freed": "fiu", "draft_kv": "fiu"}
ALWAYS = ("prompt", "output")
Body = Callable[[PublishCase, CommittedState, CommittedState], None]
"""What a check says of a case, the state by the clause and the state found."""


# ---- asking


def published(check: Check, cases: Sequence[PublishCase]) -> list[CommittedState]:
    """The implementation's states after one round of each request, their form judged."""
    found = compare.members(check.call("publish", [copy(case) for case in cases]), len(cases))
    return [formed(state) for state in found]


def formed(found: Any) -> CommittedState:
    """A state in plain arrays; `ClauseViolation` where a field is missing or of another form."""
    values: dict[str, Any] = {}
    for name in FIELDS:
        if not hasattr(found, name):
            raise ClauseViolation(f"the state is a {type(found).__name__} without {name}")
        value = getattr(found, name)
        if not is_shown(value):
            if name in ALWAYS:
                raise ClauseViolation(f"the state does not show its {name}")
            values[name] = NOT_SHOWN
        elif name in VECTORS:
            values[name] = None if value is None and name == "draft_kv" else _vector(name, value)
        else:
            values[name] = _scalar(name, value)
    return CommittedState(**values)


def _vector(name: str, value: Any) -> np.ndarray:
    array = compare.plain(value, name)
    kinds = VECTORS[name]
    if array.ndim != 1 or (array.size and array.dtype.kind not in kinds):
        holds = "token ids, integers" if kinds == "iu" else "one number a row"
        raise ClauseViolation(f"{name} is {array.dtype} of shape {list(array.shape)}; it is a vector of {holds}")
    return array.astype(np.int64 if kinds == "iu" else np.float64)


def _scalar(name: str, value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    forms: dict[str, tuple[Callable[[], bool], str]] = {
        "pending": (lambda: value is None or _is_int(value), "a token or None"),
        "finished": (lambda: isinstance(value, (bool, np.bool_)), "a boolean"),
        "seed": (
            lambda: value is None or _is_int(value) or isinstance(value, (float, np.floating)),
            "a number or None",
        ),
        "finish_reason": (
            lambda: value is None or (isinstance(value, str) and value in FINISH_REASONS),
            f"one of {', '.join(FINISH_REASONS)}, or None",
        ),
    }
    holds, rule = forms[name]
    if not holds():
        raise ClauseViolation(f"{name} is {value!r}, a {type(value).__name__}; it is {rule}")
    if value is None:
        return None
    return {"pending": int, "finished": bool, "seed": float, "finish_reason": str}[name](value)


def _is_int(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def few(check: Check) -> int:
    """How many drawn cases a check runs on, where many checks draw the same: a third of the profile's, 25 at least."""
    return max(min(check.profile.examples, 25), check.profile.examples // 3)


def every(check: Check, drawn: Any, first: Sequence[PublishCase], body: Body, *shown: str, twice: bool = False) -> None:
    """Run `body` on named rounds and on drawn ones, each published by itself, where it shows one field of `shown`."""
    check.require("publish")

    def ask(case: PublishCase) -> None:
        (found,) = published(check, [case])
        if shown and not any(is_shown(getattr(found, name)) for name in shown):
            raise Inapplicable(f"the implementation shows no {' and no '.join(shown)}")
        body(case, expected(check, case), found)

    check.for_all(drawn, ask, examples=few(check), first=first)


# ---- the right answer


def draft_kv(check: Check) -> str:
    """Where a drafter's rows come from, as declared."""
    return check.convention("draft_kv", "recomputed")


def expected(check: Check, case: PublishCase) -> CommittedState:
    """By the second road; the oracle has to agree with it."""
    right = road.published(case, draft_kv(check))
    if not check.is_oracle:
        (ours,) = oracle.publish([case], draft_kv(check))
        for name in FIELDS:
            if not same(getattr(right, name), getattr(ours, name)):
                raise HarnessError(f"the oracle and the second road disagree about {name}")
    return right


def same(one: Any, other: Any) -> bool:
    """Whether two values of a field are equal, vectors entry by entry."""
    if isinstance(one, (np.ndarray, tuple)) and isinstance(other, (np.ndarray, tuple)):
        return np.array_equal(np.asarray(one), np.asarray(other))
    return type(one) is type(other) and bool(one == other)


# ---- judging


def rows(
    case: PublishCase,
    right: CommittedState,
    found: CommittedState,
    name: str,
    start: int = 0,
    stop: int | None = None,
    exact: bool = False,
) -> None:
    """`ClauseViolation` at the first entry of a vector, of those from `start` to `stop`, that is not the right one.

    What stands behind the last one expected is judged where `exact`. A field that is not shown is passed over.
    """
    values = getattr(found, name)
    if not is_shown(values):
        return
    wanted = getattr(right, name).tolist()
    given = [] if values is None else values.tolist()
    last = max(len(wanted), len(given)) if exact else len(wanted)
    for i in range(start, last if stop is None else min(stop, last)):
        if wanted[i : i + 1] != given[i : i + 1]:
            held: Any = dataclasses.replace(found, **{name: np.array(given)})  # type: ignore[arg-type]
            raise ClauseViolation(drawing.first_difference(case, right, held, name, i))


def value(right: CommittedState, found: CommittedState, name: str, why: str) -> None:
    """`ClauseViolation` unless a plain field is the right one; one that is not shown is passed over."""
    wanted, given = getattr(right, name), getattr(found, name)
    if is_shown(given) and wanted != given:
        raise ClauseViolation(f"{name} is {said(wanted)}: {why}; found {said(given)}")


def said(value: Any) -> str:
    return drawing.number(value) if isinstance(value, float) else repr(value)


def whole(case: PublishCase, right: CommittedState, found: CommittedState) -> None:
    """`ClauseViolation` at the first field that is shown and is not the right one."""
    for name in ("prompt", "output", "kv", "features", "freed", "draft_kv"):
        given, wanted = getattr(found, name), getattr(right, name)
        if not is_shown(given) or (given is not None and same(given, wanted)) or (given is None and wanted is None):
            continue
        if name in ("prompt", "freed") or given is None or wanted is None:
            told = [said(one) if one is None else [drawing.number(v) for v in one] for one in (wanted, given)]
            raise ClauseViolation(f"{name} is {told[0]}; found {told[1]}")
        rows(case, right, found, name, exact=True)
    for name in ("pending", "finished", "seed", "finish_reason"):
        value(right, found, name, "so the request alone has it")


def batch(check: Check, call: Rounds) -> None:
    """`ClauseViolation` where a member of the batch has not the state that it has alone."""
    found = published(check, call.rounds)
    for member, (case, state) in enumerate(zip(call.rounds, found)):
        try:
            whole(case, expected(check, case), state)
        except ClauseViolation as violation:
            raise ClauseViolation(f"member {member} of {len(call.rounds)}: {violation.reason}") from None
