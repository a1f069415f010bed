"""Proposers: drafted tokens come from the rows that are declared for them, in node order."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from conformance import compare, draw
from conformance.acceptance import proposing
from conformance.acceptance.cases import TableModel, floats
from conformance.check import Check, Raised
from conformance.evidence import EProcess
from conformance.profiles import ALPHA_OF_A_CHECK
from conformance.roads import acceptance as road
from conformance.verdicts import ClauseViolation
from oracle.acceptance import verify_random
from oracle.types import ProposalCase, VerifyCase

TRIALS = 40
VERIFIER_SEED = 10**9
"""Far from every proposer's seed, so that the verifier's coins are no proposer's uniforms."""
SAMPLED = [
    pytest.param("iid", marks=pytest.mark.clauses("ACCEPTANCE-1106"), id="iid"),
    pytest.param("without_replacement", marks=pytest.mark.clauses("ACCEPTANCE-1107"), id="without_replacement"),
]


@pytest.mark.clauses("ACCEPTANCE-1101")
@pytest.mark.parametrize("proposal", proposing.KINDS)
def test_a_proposal_has_its_form(check: Check, proposal: str) -> None:
    check.require("propose")

    def body(case: ProposalCase) -> None:
        proposing.propose(check, case)

    cases = [proposing.asked(m, n, 3, layers=n == 3) for m in proposing.shapes(proposal) for n in (5, 3)]
    check.for_each(cases, body)


@pytest.mark.clauses("ACCEPTANCE-1103")
@pytest.mark.parametrize("proposal", proposing.KINDS)
def test_the_declared_row_is_the_tables(check: Check, proposal: str) -> None:
    check.require("propose")

    def body(case: ProposalCase) -> None:
        found = proposing.propose(check, case)
        model = by_shape[tuple(case.parent.tolist())]
        slack = compare.slack(check.arithmetic, model.vocabulary)
        for trial, (tokens, rows) in enumerate(zip(found.token.tolist(), found.draft_probs)):
            for node in proposing.parents_of(case):
                prefix = model.prefix(tokens, node)
                right = [float(q) for q in model.draft[prefix]]
                bounds = [2 * float(slack.mass(Fraction(0), Fraction(r))) for r in right]
                off = [abs(q - r) - bound for q, r, bound in zip(rows[node + 1], right, bounds)]
                if max(off) > 0:
                    token = off.index(max(off))
                    raise ClauseViolation(
                        f"trial {trial} drafted {tokens}; the children of {draw.node(node)} follow the tokens "
                        f"{list(prefix)}, where the table has q = {draw.row(right)}; declared is "
                        f"{draw.row(rows[node + 1])}, with {rows[node + 1][token]:.9g} for token {token}"
                    )

    by_shape = {model.parent: model for model in proposing.shapes(proposal)}
    cases = [
        proposing.asked(model, TRIALS, check.seed + layers, layers=layers)
        for model in by_shape.values()
        for layers in (False, True)
    ]
    check.for_each(cases, body)


@pytest.mark.clauses("ACCEPTANCE-1104")
@pytest.mark.parametrize("tied", [False, True], ids=["distinct", "tied"])
def test_point_proposals_are_the_most_probable(check: Check, tied: bool) -> None:
    check.require("propose")
    model = proposing.tied_model() if tied else proposing.model("point")
    ((right, _),) = model.drafted()

    def body(case: ProposalCase) -> None:
        for trial, tokens in enumerate(proposing.propose(check, case).token.tolist()):
            if tuple(tokens) != right:
                node = next(i for i, (a, b) in enumerate(zip(tokens, right)) if a != b)
                row = model.draft[model.prefix(right, model.parent[node])]
                raise ClauseViolation(
                    f"trial {trial}, node {node}: its row is {draw.row(row)}, so {{clause}} drafts token "
                    f"{right[node]} there; the implementation drafted {tokens[node]}"
                )

    check.for_each([proposing.asked(model, 4, check.seed)], body)


@pytest.mark.clauses("ACCEPTANCE-1105")
def test_siblings_without_replacement_differ(check: Check) -> None:
    check.require("propose")

    def body(case: ProposalCase) -> None:
        for trial, tokens in enumerate(proposing.propose(check, case).token.tolist()):
            for node in proposing.parents_of(case):
                siblings = [t for t, above in zip(tokens, case.parent.tolist()) if above == node]
                if len(set(siblings)) < len(siblings):
                    raise ClauseViolation(f"trial {trial}: the children of {draw.node(node)} are {siblings}")

    shapes = [model for model in proposing.shapes("without_replacement") if not model.is_chain]
    check.for_each([proposing.asked(model, TRIALS, check.seed) for model in shapes], body)


@pytest.mark.statistical
@pytest.mark.parametrize("proposal", SAMPLED)
def test_drafts_follow_their_rows(check: Check, proposal: str) -> None:
    """The law of a whole tree's tokens: each from its row, in node order."""
    check.require("propose")

    def body(model: TableModel) -> None:
        law = dict(model.drafted())
        order = sorted(law)

        def sample(trials: int, seed: int) -> list[int]:
            counts = dict.fromkeys(order, 0)
            for tokens in proposing.propose(check, proposing.asked(model, trials, seed)).token.tolist():
                if tuple(tokens) not in counts:
                    raise ClauseViolation(f"the drafts {tokens} cannot come from their rows")
                counts[tuple(tokens)] += 1
            return [counts[tokens] for tokens in order]

        process = check.weigh(
            "the drafts of a tree follow the rows declared for them, in node order",
            [float(law[tokens]) for tokens in order],
            sample,
            check.trials("propose", 0.7),
            ALPHA_OF_A_CHECK / 2,
        )
        if process.alarmed:
            seen = dict(zip(order, process.counts))
            worst = max(order, key=lambda t: abs(seen[t] / process.observations - float(law[t])))
            raise ClauseViolation(
                f"of {process.observations} trials {seen[worst]} drafted {list(worst)}; the rows declared for them "
                f"give {draw.number(float(law[worst]) * process.observations)} (e-value 10^"
                f"{process.largest / 2.302585:.1f} against α = {process.alpha:.0e})"
            )

    check.for_each(proposing.law_shapes(proposal), body)


@pytest.mark.statistical
@pytest.mark.parametrize("proposal", SAMPLED)
def test_a_verifier_accepts_as_the_rows_promise(check: Check, proposal: str) -> None:
    """Accounting: judged by p, a first child drawn from q is accepted Σ min(p, q) of the time."""
    check.require("propose")

    def body(model: TableModel) -> None:
        target = model.target[()]
        share = float(road.acceptance(target, model.draft[()]))
        rows = floats([target, target])

        def sample(trials: int, seed: int) -> list[int]:
            found = proposing.propose(check, proposing.asked(model, trials, seed))
            cases = [
                VerifyCase(np.array([-1]), tokens[:1], rows, "iid", np.stack([declared[0] / declared[0].sum()] * 2))
                for tokens, declared in zip(found.token, found.draft_probs)
            ]
            accepted = sum(len(decision.path) for decision in verify_random(cases, VERIFIER_SEED + seed))
            return [accepted, trials - accepted]

        process = check.weigh(
            "a first child is accepted Σ min(p, q) of the time, q the row declared for it",
            [share, 1 - share],
            sample,
            check.trials("propose", 0.4),
            ALPHA_OF_A_CHECK / 2,
        )
        if process.alarmed:
            raise ClauseViolation(
                f"judged by p = {draw.row(target)}, {process.counts[0]} of {process.observations} first children were "
                f"accepted; drawn from the declared q = {draw.row(model.draft[()])} they are accepted "
                f"{draw.number(share)} of the time"
            )

    check.for_each(proposing.law_shapes(proposal), body)


@pytest.mark.statistical
@pytest.mark.clauses("ACCEPTANCE-1108")
def test_trials_are_independent(check: Check) -> None:
    """The drafts of a node in two trials of one call, next to each other, two apart, and half a call apart."""
    check.require("propose")

    def body(model: TableModel) -> None:
        size, trials = model.vocabulary, check.trials("propose", 0.5) // 4 * 4
        token = proposing.propose(check, proposing.asked(model, trials, check.seed)).token
        weighed: list[tuple[str, EProcess]] = []
        for node in range(2):
            marginal = [0.0] * size
            for drafted, weight in model.drafted():
                marginal[drafted[node]] += float(weight)
            for name, first, second in pairs(trials):
                process = EProcess([a * b for a in marginal for b in marginal], ALPHA_OF_A_CHECK / 16)
                counts = np.bincount(token[first, node] * size + token[second, node], minlength=size * size)
                process.update([int(count) for count in counts])
                weighed.append((f"the drafts of node {node} in two trials {name}", process))
        name, worst = max(weighed, key=lambda pair: pair[1].largest)
        null = f"{name} are independent (of {len(weighed)}, the one with most evidence against it)"
        check.state(null, worst, trials // 2)
        if worst.alarmed:
            raise ClauseViolation(
                f"{name}: {worst.observations} pairs fell {list(worst.counts)}; independent ones are expected to fall "
                f"{[round(p * worst.observations) for p in worst.law]}"
            )

    check.for_each(proposing.law_shapes("iid"), body)


def pairs(trials: int) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Disjoint pairs of trials: how far they are apart, and their indices."""
    even, half = np.arange(0, trials - 2, 2), np.arange(trials // 2)
    by_four = np.arange(0, trials - 2, 4)
    two = np.concatenate([by_four, by_four + 1])
    return [
        ("next to each other", even, even + 1),
        ("next to each other, odd ones first", even + 1, even + 2),
        ("two apart", two, two + 2),
        ("half a call apart", half, half + trials // 2),
    ]


@pytest.mark.clauses("ACCEPTANCE-1102")
def test_another_seed_gives_other_drafts(check: Check) -> None:
    check.require("propose")
    model = proposing.model("iid")

    def body(case: ProposalCase) -> None:
        other = proposing.asked(model, case.trials, case.seed + 1)
        one, two = (proposing.propose(check, asked).token for asked in (case, other))
        if np.array_equal(one, two):
            raise ClauseViolation(f"the seeds {case.seed} and {other.seed} give the same {case.trials} trials")

    check.for_each([proposing.asked(model, TRIALS, check.seed)], body)


@pytest.mark.hostile
@pytest.mark.clauses("ACCEPTANCE-1109")
@pytest.mark.parametrize("proposal", ["point", "without_replacement"])
def test_more_siblings_than_support_are_refused(check: Check, proposal: str) -> None:
    check.require("propose")

    def body(case: ProposalCase) -> None:
        try:
            found = check.call("propose", case)
        except Raised:
            return
        raise ClauseViolation(
            f"three siblings that differ cannot come from a row with two tokens of mass; the implementation drafted "
            f"{np.asarray(found.token).tolist()}"
        )

    check.for_each([proposing.asked(proposing.scarce_model(proposal), 2, 1)], body)
