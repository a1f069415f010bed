"""The law checks see structural faults: each moves the published law further than the checks can miss.

The faults are written as the formulas that they compute, in rationals, without a verifier.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import pytest

from adapters.faulty import acceptance as faulty_verifiers
from conformance.acceptance import measure, models, sampling
from conformance.acceptance.cases import Prefix, TableModel
from conformance.evidence import detectable_distance
from conformance.profiles import ALPHA_OF_A_CHECK, POWER, PROFILES
from conformance.roads import acceptance as road
from conformance.roads import schemes

Row = Sequence[Fraction]
Accept = Callable[[Prefix, int], Fraction]
Residual = Callable[[Prefix, int], Row]
Bonus = Callable[[Prefix], Row]


class Formulas:
    """The right formulas of a model, to be spoilt one at a time. `t` are the drafts, `i` the position."""

    def __init__(self, model: TableModel) -> None:
        self.model = model

    def p(self, t: Prefix, i: int) -> Row:
        return self.model.target[t[:i]]

    def q(self, t: Prefix, i: int) -> Row:
        if self.model.proposal == "point":
            return [Fraction(int(v == t[i])) for v in range(self.model.vocabulary)]
        return self.model.draft[t[:i]]

    def accept(self, t: Prefix, i: int) -> Fraction:
        return ratio(self.p(t, i), self.q(t, i), t[i])

    def residual(self, t: Prefix, i: int) -> Row:
        return owed(self.p(t, i), self.q(t, i))

    def bonus(self, t: Prefix) -> Row:
        return self.model.target[t]


def ratio(p: Row, q: Row, token: int) -> Fraction:
    return min(Fraction(1), p[token] / q[token]) if q[token] else Fraction(1)


def owed(p: Row, q: Row) -> Row:
    left = [max(Fraction(0), a - b) for a, b in zip(p, q)]
    return normalised(left) if any(left) else p


def normalised(row: Row) -> Row:
    return [v / sum(row) for v in row]


def most_probable(row: Row) -> Row:
    best = max(range(len(row)), key=lambda v: row[v])
    return [Fraction(int(v == best)) for v in range(len(row))]


def faulty(model: TableModel) -> dict[str, tuple[Accept, Residual, Bonus]]:
    """Name of a fault → its three formulas."""
    f = Formulas(model)
    following = lambda t, i: model.target[t[: i + 1]]  # noqa: E731
    found: dict[str, tuple[Accept, Residual, Bonus]] = {
        "residual is the target row": (f.accept, f.p, f.bonus),
        "residual is |p − q|": (
            f.accept,
            lambda t, i: normalised([abs(a - b) for a, b in zip(f.p(t, i), f.q(t, i))]),
            f.bonus,
        ),
        "residual from the next target row": (f.accept, lambda t, i: owed(following(t, i), f.q(t, i)), f.bonus),
        "target row of the next position": (
            lambda t, i: ratio(following(t, i), f.q(t, i), t[i]),
            lambda t, i: owed(following(t, i), f.q(t, i)),
            f.bonus,
        ),
        "target row of the root everywhere": (
            lambda t, i: ratio(model.target[()], f.q(t, i), t[i]),
            f.residual,
            f.bonus,
        ),
        "everything accepted": (lambda t, i: Fraction(1), f.residual, f.bonus),
        "everything rejected": (lambda t, i: Fraction(0), f.residual, f.bonus),
        "ratio turned over": (lambda t, i: ratio(f.q(t, i), f.p(t, i), t[i]), f.residual, f.bonus),
        "bonus from the previous row": (f.accept, f.residual, lambda t: model.target[t[:-1]]),
        "bonus is the argmax": (f.accept, f.residual, lambda t: most_probable(model.target[t])),
    }
    if model.proposal == "iid":
        next_q = lambda t, i: model.draft[t[: i + 1]]  # noqa: E731
        found |= {
            "bonus from the draft row": (f.accept, f.residual, lambda t: model.draft[t]),
            "draft row of the next position": (
                lambda t, i: ratio(f.p(t, i), next_q(t, i), t[i]),
                lambda t, i: owed(f.p(t, i), next_q(t, i)),
                f.bonus,
            ),
            "residual with the next draft row": (f.accept, lambda t, i: owed(f.p(t, i), next_q(t, i)), f.bonus),
            "blind to q": (lambda t, i: f.p(t, i)[t[i]], f.residual, f.bonus),
        }
    return found


def law(model: TableModel, accept: Accept, residual: Residual, bonus: Bonus) -> dict[Prefix, float]:
    """What a verifier of these formulas publishes, continued by the target."""
    emitted: dict[Prefix, float] = {}

    def publish(tokens: Prefix, weight: Fraction, row: Row) -> None:
        for v, probability in enumerate(row):
            key = (*tokens, v)
            emitted[key] = emitted.get(key, 0.0) + float(weight * probability)

    for tokens, alive in model.drafted():
        for i in range(model.nodes):
            chance = accept(tokens, i)
            publish(tokens[:i], alive * (1 - chance), residual(tokens, i))
            alive *= chance
        publish(tokens, alive, bonus(tokens))
    return measure.completed(emitted, model, model.depth + 1)


def distance(left: dict[Prefix, float], right: dict[Prefix, float]) -> float:
    return sum(abs(left.get(k, 0.0) - right.get(k, 0.0)) for k in left.keys() | right.keys()) / 2


@pytest.mark.parametrize("proposal", ["iid", "point"])
def test_right_formulas_publish_the_target_law(proposal: str) -> None:
    (model,) = models.law_models(proposal)
    f = Formulas(model)
    target = {k: float(v) for k, v in road.sequence_law(model.target, model.depth + 1).items()}
    assert distance(law(model, f.accept, f.residual, f.bonus), target) < 1e-12


@pytest.mark.parametrize("proposal", ["iid", "point"])
def test_every_structural_fault_moves_the_law_further_than_quick_can_miss(proposal: str) -> None:
    (model,) = models.law_models(proposal)
    target = {k: float(v) for k, v in road.sequence_law(model.target, model.depth + 1).items()}
    seen = detectable_distance(tuple(target.values()), ALPHA_OF_A_CHECK, PROFILES["quick"].trials, POWER)
    for name, formulas in faulty(model).items():
        moved = distance(law(model, *formulas), target)
        assert moved > seen, f"{name} moves the law by {moved:.3f}; quick sees {seen:.3f}"


@pytest.mark.parametrize("proposal", ["iid", "point"])
def test_rows_are_heterogeneous(proposal: str) -> None:
    for model in [*models.law_models(proposal), *models.ragged_models()]:
        rows = [tuple(row) for table in (model.target, model.draft) for row in table.values()]
        assert len(set(rows)) == len(rows)
        for prefix in model.target:
            assert all(p != q for p, q in zip(model.target[prefix], model.draft[prefix]))


@pytest.mark.parametrize("proposal", ["iid", "point"])
def test_accounting_cells_are_distinct_and_nearly_always_accepted(proposal: str) -> None:
    shares = []
    for case in models.accounting_members(proposal):
        for node, token in enumerate(case.token):
            q = 1.0 if case.draft_probs is None else case.draft_probs[node][token]
            shares.append((node, round(case.target_probs[node][token] / q, 6)))
        assert len({tuple(row) for row in case.target_probs}) == len(case.target_probs)
    assert all(0.9 <= share < 1 for _, share in shares)
    assert len({share for _, share in shares}) >= 5


@pytest.mark.parametrize("proposal", ["iid", "point", "without_replacement"])
def test_forks_move_under_the_faults_they_were_picked_for(proposal: str) -> None:
    """20 000 first tokens a fault, compared with the target: sampling moves a law by less than 0.02."""
    model = models.fork_model(proposal)
    faults = ["WholeRowAfterTheSecondRejection"]
    if proposal != "point":
        faults += ["PrunesTheLessProbableSibling", "MostProbableSiblingFirst"]
    if proposal == "iid":
        faults += ["TwinsCountTwice", "IndependentSiblingsAgainstTheWholeRow"]
    if proposal == "point":
        faults += ["PointSiblingsShareACoin", "RejectedPointStaysIn"]
    drafted = [sampling.draft(model, row) for row in np.random.default_rng(1).random((20_000, 2)).tolist()]
    cases = [model.case(tokens) for tokens in drafted]
    for name in faults:
        found = getattr(faulty_verifiers, name).verify_random(cases, 2)
        first = [tokens[d.path[0]] if d.path else d.frontier for tokens, d in zip(drafted, found)]
        seen = np.bincount(first, minlength=3) / len(first)
        moved = float(np.abs(seen - np.array(model.target[()], dtype=np.float64)).sum() / 2)
        assert moved > 0.1, f"{name} moves the law by {moved:.3f}"


@pytest.mark.parametrize("proposal", ["iid", "point", "without_replacement"])
def test_accounting_trees_test_every_node_often(proposal: str) -> None:
    for case in models.accounting_trees(proposal):
        share = [float(schemes.accepted_when_tested(case, i, "per_node")) for i in range(len(case.parent))]
        reached, tested = {-1: 1.0}, []
        for i, above in enumerate(case.parent.tolist()):
            siblings = [j for j in range(i) if case.parent[j] == above]
            tested.append(reached[above] * float(np.prod([1 - share[j] for j in siblings])))
            reached[i] = tested[-1] * share[i]
        assert min(tested) > 0.14, "every node is tested in a seventh of the rounds"
        assert all(0.1 < share[i] < 0.95 for i in (0, 1)), "first and second siblings go either way"
        assert len({round(s, 6) for s in share}) >= 4
