"""What has to hold of decisions and drafts that a golden vector does not determine.

"one_of": the answer is one of `answers`; with `refused`, an error is as good.
"no_law": an error, or of each of `rows` an answer that is visibly no law: a number outside of [0, 1], or a sum that is
not one.
"joint_law": called at the seeds seed, seed + 1, …, `trials` times, the decisions of all members together, each as
[path, frontier], follow `law`; `fixtures.laws` says by which inequality, at the level `alpha`.
"declared_drafts": in each trial the row declared for the children of a node is the table's after the tokens drafted on
the way to it, within roundings · u of each entry, and siblings differ unless they are independent; another seed gives
other tokens; of the pairs of trials next to each other, and of those half a call apart, as many draft the same tokens
as the probability `repeated` allows at the level `alpha`.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from adapters.encoding import canonical
from adapters.interface import DTYPES, Declaration
from conformance import compare
from conformance.acceptance import proposing
from conformance.check import DEFAULT_COST, Raised
from conformance.fixtures import laws
from conformance.fixtures.comparing import differs
from conformance.handout import copy
from oracle.types import ProposalCase

SECONDS, LEAST_CALLS = 3.0, 32
"""What a joint law may cost an implementation, by the cost that it declares, and how often it is asked anyhow."""


def broken(
    relation: Mapping[str, Any],
    operation: str,
    arguments: Mapping[str, Any],
    call: Callable[..., Any],
    declaration: Declaration,
) -> str | None:
    """Why the relation does not hold, or None."""
    return _RELATIONS[relation["relation"]](relation, operation, arguments, call, declaration)


def _one_of(
    relation: Mapping[str, Any],
    operation: str,
    arguments: Mapping[str, Any],
    call: Callable[..., Any],
    declaration: Declaration,
) -> str | None:
    try:
        found = call(operation, *copy(list(arguments.values())))
    except Raised as error:
        return None if relation["refused"] else error.reason
    reasons = [differs(answer, found) for answer in relation["answers"]]
    return None if None in reasons else f"{reasons[0]}, or one of {len(reasons)} answers"


def _no_law(
    relation: Mapping[str, Any],
    operation: str,
    arguments: Mapping[str, Any],
    call: Callable[..., Any],
    declaration: Declaration,
) -> str | None:
    case = arguments["case"]
    try:
        found = compare.plain(call(operation, copy(case)), "the result")
    except Raised:
        return None
    rows = found.astype(np.float64).reshape(-1, found.shape[-1])
    for r in relation["rows"]:
        if all(0 <= p <= 1 for p in rows[r]) and math.isclose(math.fsum(rows[r]), 1, abs_tol=1e-3):
            return f"row {r} has no law, and it was warped to {rows[r].tolist()}"
    return None


def _joint_law(
    relation: Mapping[str, Any],
    operation: str,
    arguments: Mapping[str, Any],
    call: Callable[..., Any],
    declaration: Declaration,
) -> str | None:
    cases, seed = arguments["cases"], int(arguments["seed"])
    seen: Counter[str] = Counter()
    # fewer trials see less, and refute a right law no sooner
    affordable = int(SECONDS / (declaration.cost.get(operation, DEFAULT_COST) * len(cases)))
    for trial in range(min(int(relation["trials"]), max(LEAST_CALLS, affordable))):
        found = compare.decisions(call(operation, copy(cases), seed + trial), len(cases))
        seen[canonical([[list(one.path), one.frontier] for one in found])] += 1
    law = {canonical(outcome): Fraction(p) for outcome, p in relation["law"]}
    return laws.misfit(seen, law, float(relation["alpha"]))


def _declared_drafts(
    relation: Mapping[str, Any],
    operation: str,
    arguments: Mapping[str, Any],
    call: Callable[..., Any],
    declaration: Declaration,
) -> str | None:
    case = arguments["case"]
    found = proposing.read(call(operation, copy(case)), case)
    rows, unit = table_of(case), DTYPES[declaration.arithmetic.dtype] * float(relation["roundings"])
    for trial, tokens in enumerate(found.token.tolist()):
        prefixes: dict[int, tuple[int, ...]] = {-1: ()}
        for node, above in enumerate(case.parent.tolist()):
            prefixes[node] = (*prefixes[above], tokens[node])
        for node in proposing.parents_of(case):
            declared, right = found.draft_probs[trial, node + 1], np.array(rows[prefixes[node]])
            slack = right * unit if not declaration.arithmetic.draft_via_logits else right * unit * len(right) + unit
            if not (np.abs(declared - right) <= slack).all():
                return f"trial {trial} drafts {tokens} and declares {declared.tolist()} after {list(prefixes[node])}"
            children = [tokens[i] for i, above in enumerate(case.parent.tolist()) if above == node]
            if case.proposal != "iid" and len(set(children)) < len(children):
                return f"trial {trial} drafts the siblings {children}"
    other = proposing.read(call(operation, dataclasses.replace(copy(case), seed=case.seed + 1)), case)
    if np.array_equal(found.token, other.token):
        return f"the seeds {case.seed} and {case.seed + 1} draft the same"
    again = Fraction(relation["repeated"])
    for first, second in _pairs(case.trials):
        same = int((found.token[first] == found.token[second]).all(axis=1).sum())
        counts = {"the same tokens": same, "others": len(first) - same}
        if wrong := laws.misfit(counts, {"the same tokens": again, "others": 1 - again}, float(relation["alpha"])):
            return f"of pairs of trials {wrong}"
    return None


def _pairs(trials: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Disjoint pairs of trials: next to each other, from the first and from the second on, and half a call apart."""
    even, half = np.arange(0, trials - 2, 2), np.arange(trials // 2)
    return [(even, even + 1), (even + 1, even + 2), (half, half + trials // 2)]


def table_of(case: ProposalCase) -> Mapping[tuple[int, ...], Sequence[float]]:
    """The case's table by prefixes."""
    if isinstance(case.table, Mapping):
        return case.table
    return {prefix: layer[prefix].tolist() for layer in case.table for prefix in np.ndindex(*layer.shape[:-1])}


_RELATIONS: Mapping[str, Callable[..., str | None]] = {
    "one_of": _one_of,
    "no_law": _no_law,
    "joint_law": _joint_law,
    "declared_drafts": _declared_drafts,
}
