"""Black-box trials: the suite drafts, the implementation verifies, the target's table continues."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from conformance import compare
from conformance.acceptance.cases import Batch, Prefix, RaggedModels, TableModel
from conformance.check import Check
from oracle.types import Decision, VerifyCase


def draft(model: TableModel, uniforms: Sequence[float]) -> Prefix:
    """One tree's tokens from the model's drafter, node by node."""
    tokens: Prefix = ()
    for u in uniforms:
        tokens = (*tokens, pick(model.float_law("next", tokens), u))
    return tokens


def continue_from(model: TableModel, tokens: Prefix, uniforms: Sequence[float]) -> Prefix:
    """`tokens` continued by the target until all `uniforms` are spent."""
    for u in uniforms:
        tokens = (*tokens, pick(model.float_law("target", tokens), u))
    return tokens


def pick(row: Sequence[float], u: float) -> int:
    """Inverse CDF on a table row."""
    total = 0.0
    for v, probability in enumerate(row):
        total += probability
        if u < total:
            return v
    return max(v for v, probability in enumerate(row) if probability)


def published(check: Check, model: TableModel, trials: int, seed: int) -> list[Prefix]:
    """What `trials` rounds publish, each continued to one token more than the tree is deep."""
    generator = np.random.default_rng([7, seed])
    length = model.depth + 1
    drafted = [draft(model, row) for row in generator.random((trials, model.nodes)).tolist()]
    cases = [model.case(tokens) for tokens in drafted]
    found = verify(check, cases, seed)
    rest: list[list[float]] = generator.random((trials, length)).tolist()
    emitted = []
    for tokens, case, decision, uniforms in zip(drafted, cases, found, rest):
        start = emit(tokens, case, decision, seed)
        emitted.append(continue_from(model, start, uniforms[: length - len(start)]))
    return emitted


def published_together(check: Check, case: RaggedModels, rounds: int, seed: int) -> list[list[Prefix]]:
    """What each member publishes in `rounds` rounds whose call holds all models in turn."""
    generator = np.random.default_rng([8, seed])
    drafted = [
        (m, draft(model, generator.random(model.nodes).tolist()))
        for _ in range(rounds)
        for m, model in enumerate(case.models)
    ]
    cases = [case.models[m].case(tokens) for m, tokens in drafted]
    published: list[list[Prefix]] = [[] for _ in case.models]
    for (m, tokens), of, decision in zip(drafted, cases, verify(check, cases, seed)):
        published[m].append(emit(tokens, of, decision, seed))
    return published


def verify(check: Check, cases: Sequence[VerifyCase], seed: int) -> list[Decision]:
    """One black-box call; a malformed decision is a violation that shows its case alone."""
    return compare.decisions(check.call("verify_random", list(cases), seed), len(cases))


def emit(tokens: Prefix, case: VerifyCase, decision: Decision, seed: int) -> Prefix:
    """The tokens of a decision, which must be well-formed to have a law."""
    compare.check_structure(case, decision, Batch((case,), None, seed))
    return (*(tokens[node] for node in decision.path), decision.frontier)
