"""Comparing decisions: what an implementation of a given precision may answer, and where it diverges.

Tolerances are derived. With unit roundoff ε of the declared dtype, a probability carries one rounding
when it is cast. One that travels as a logarithm l and returns through a softmax over V entries carries
2|l| + V + 6 (l rounded and shifted by the maximum: 2|l|; exp, the division and the cast: 6; the sum: V).
u·q against p adds two roundings and the coin's own. A decision inside these bounds of a tie is
undecidable at this precision: counted, never failed, never hidden.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from adapters.interface import DTYPES, Arithmetic
from conformance import draw
from conformance.roads import acceptance as road
from conformance.verdicts import ClauseViolation, HarnessError
from oracle import acceptance as oracle
from oracle.types import NOT_SHOWN, Coins, Decision, VerifyCase


def slack(arithmetic: Arithmetic, vocabulary: int) -> road.Slack:
    """The road's slack for an implementation that declares `arithmetic`, over `vocabulary` tokens."""
    unit = Fraction(DTYPES[arithmetic.dtype])
    coin = Fraction(DTYPES[arithmetic.coin_dtype])

    def relative(probability: Fraction, via_logits: bool) -> Fraction:
        if probability == 0:
            return Fraction(0)
        if not via_logits:
            return unit
        return unit * (2 * Fraction(abs(math.log(probability))) + vocabulary + 6)

    def accept(p: Fraction, q: Fraction) -> Fraction:
        return relative(p, arithmetic.via_logits) + relative(q, arithmetic.draft_via_logits) + 2 * unit + coin

    def mass(p: Fraction, q: Fraction) -> Fraction:
        return p * relative(p, arithmetic.via_logits) + q * relative(q, arithmetic.draft_via_logits) + unit * abs(p - q)

    return road.Slack(accept, mass, (vocabulary + 2) * unit + coin)


def decision(value: Any, where: str, case: object = None) -> Decision:
    """An implementation's decision in plain integers; `ClauseViolation` where it is none.

    `value` has `path` and `frontier`; both may be anything NumPy reads, or that `np.from_dlpack` takes.
    """
    try:
        raw_path, raw_frontier = value.path, value.frontier
    except AttributeError:
        raise ClauseViolation(
            f"{where} is a {type(value).__name__}, not a Decision with path and frontier", case
        ) from None
    path = _integers(raw_path, f"{where}.path", case)
    frontier = _integers(raw_frontier, f"{where}.frontier", case)
    if len(frontier) != 1:
        raise ClauseViolation(f"{where}.frontier holds {len(frontier)} tokens; a round publishes exactly one", case)
    return Decision(tuple(path), frontier[0])


def decisions(values: Any, count: int, case: object = None) -> list[Decision]:
    """A batch of decisions; `ClauseViolation` unless there is one for each of `count` cases."""
    try:
        values = list(values)
    except TypeError:
        raise ClauseViolation(f"the result is a {type(values).__name__}, not a list of decisions", case) from None
    if len(values) != count:
        raise ClauseViolation(f"the batch of {count} cases returned {len(values)} decisions", case)
    return [decision(value, f"decisions[{i}]", case) for i, value in enumerate(values)]


def check_structure(case: VerifyCase, actual: Decision, drawn: object) -> None:
    """A frontier in the vocabulary and a path of children from the root down, or `ClauseViolation`."""
    vocabulary = np.asarray(case.target_probs).shape[1]
    if not 0 <= actual.frontier < vocabulary:
        raise ClauseViolation(f"the frontier is {actual.frontier}, outside the vocabulary [0, {vocabulary})", drawn)
    above = -1
    for node in actual.path:
        if not 0 <= node < len(case.parent) or int(case.parent[node]) != above:
            raise ClauseViolation(
                f"the path {list(actual.path)} is no walk from the root: node {node} is not a child of "
                f"{'the root' if above == -1 else f'node {above}'}",
                drawn,
            )
        above = node


def check_greedy(case: VerifyCase, actual: Decision, is_oracle: bool, drawn: object) -> None:
    """The greedy decision, or `ClauseViolation` naming the row that decides otherwise."""
    expected = road.greedy(case)
    if not is_oracle:
        _agree(oracle.verify_greedy([case])[0], [expected])
    if actual == expected:
        return
    for step in range(len(case.parent) + 1):
        node = -1 if step == 0 else (expected.path[step - 1] if step <= len(expected.path) else None)
        if node is None or actual.path[:step] != expected.path[:step]:
            break
        left, right = (_step(d, step, case) for d in (expected, actual))
        if left != right:
            row = draw.row(case.target_probs[node + 1])
            raise ClauseViolation(
                f"{draw.node(node)}: the row is p = {row}, so {{clause}} {left}; the implementation {right}", drawn
            )
    raise ClauseViolation(f"expected {draw.decision(expected)}; found {draw.decision(actual)}", drawn)


def check_sampled(
    case: VerifyCase, coins: Coins, actual: Decision, arithmetic: Arithmetic, is_oracle: bool, drawn: object
) -> bool:
    """Whether the decision is decidable and right; False: within rounding of a tie; else `ClauseViolation`."""
    found = road.admissible(case, coins, slack(arithmetic, case.target_probs.shape[1]))
    if not is_oracle:
        exact = slack(Arithmetic(), case.target_probs.shape[1])
        _agree(oracle.verify_sampled([case], [coins])[0], [t.decision for t in road.admissible(case, coins, exact)])
    if actual in [trace.decision for trace in found]:
        return len(found) == 1
    raise ClauseViolation(divergence(found[0], actual), drawn)


def divergence(trace: road.Trace, actual: Decision) -> str:
    """The first step of `trace` that `actual` takes otherwise, with its arithmetic."""
    for test in trace.tests:
        took = test.node in actual.path
        if took == test.accepted:
            continue
        relation = "<" if test.accepted else "≥"
        verb, did = ("accepts", "rejected") if test.accepted else ("rejects", "accepted")
        return (
            f"{draw.node(test.node)}: u·q = {draw.number(test.u)} · {draw.number(test.q)} = "
            f"{draw.number(test.u * test.q)} {relation} p = {draw.number(test.p)}: {{clause}} {verb} token "
            f"{test.token}; the implementation {did} it"
        )
    kind = "the residual (p − q)+ renormalised" if trace.draw.after_rejection else "the target row"
    return (
        f"frontier: {kind} is {draw.row(trace.draw.law)}, so the coin {draw.number(trace.draw.u)} picks token "
        f"{trace.draw.token}; the implementation published {actual.frontier}"
    )


def _step(found: Decision, step: int, case: VerifyCase) -> str:
    if step < len(found.path):
        node = found.path[step]
        token = case.token[node] if 0 <= node < len(case.token) else "?"
        return f"accepts node {node} (token {token})"
    return f"stops and publishes token {found.frontier}"


def _agree(ours: Decision, road_decisions: Sequence[Decision]) -> None:
    if ours not in road_decisions:
        raise HarnessError(
            f"the oracle decides {draw.decision(ours)}, the second road {draw.decision(road_decisions[0])}"
        )


def is_shown(value: Any) -> bool:
    """Whether an implementation has what a field holds."""
    return not (isinstance(value, str) and value == NOT_SHOWN)


def plain(value: Any, where: str, case: object = None) -> np.ndarray:
    """What an implementation returned as a NumPy array; `ClauseViolation` where it is none."""
    try:
        if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray):
            value = np.from_dlpack(value)
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        raise ClauseViolation(
            f"{where} is no array that NumPy reads ({type(error).__name__}: {error}); a tensor is handed out detached, "
            "on the CPU, in a dtype of NumPy",
            case,
        ) from None


def vector(value: Any, where: str, kinds: str = "iu", size: int | None = None, entry: str = "node") -> np.ndarray:
    """A vector of integers ("iu"), floats ("f") or booleans ("b") with one entry a node, `size` of them where given."""
    array = plain(value, where)
    if array.ndim != 1 or size not in (None, len(array)):
        wanted = f"one entry a {entry}" if size is None else f"one entry for each of {size} {entry}s"
        raise ClauseViolation(f"{where} has shape {array.shape}; it has {wanted}")
    if array.size and array.dtype.kind not in kinds:
        raise ClauseViolation(f"{where} is {array.dtype}; its entries are {_KINDS[kinds]}")
    return array.astype({"iu": np.int64, "f": np.float64, "b": np.bool_}[kinds])


_KINDS = {"iu": "integers", "f": "floating-point numbers", "b": "booleans"}


def members(found: Any, count: int) -> list[Any]:
    """The answers of a batch, one a case."""
    try:
        answers = list(found)
    except TypeError:
        raise ClauseViolation(f"the answer is a {type(found).__name__}; it is a list with one entry a case") from None
    if len(answers) != count:
        raise ClauseViolation(f"{count} cases have {len(answers)} answers")
    return answers


def _integers(value: Any, where: str, case: object) -> list[int]:
    array = plain(value, where, case)
    if array.size == 0:
        return []
    if array.ndim > 1 or array.dtype.kind not in "iu":
        raise ClauseViolation(
            f"{where} is {array.dtype} of shape {array.shape}; token and node ids are integers in a vector", case
        )
    return [int(v) for v in array.reshape(-1)]
