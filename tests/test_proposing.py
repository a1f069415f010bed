"""The oracle's proposer: its law, its rows, what it refuses."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from conformance.acceptance import proposing
from conformance.evidence import EProcess
from oracle.acceptance import propose
from oracle.errors import BadInput
from oracle.types import ProposalCase

ROOT = np.array([0.5, 0.25, 0.25])
BELOW = np.array([[0.1, 0.2, 0.7], [0.0, 1.0, 0.0], [0.25, 0.5, 0.25]])
TREE = np.array([-1, -1, 0])


@pytest.mark.parametrize("proposal", proposing.KINDS)
def test_the_two_forms_of_a_table_are_one(proposal: str) -> None:
    model = proposing.model(proposal)
    mapping, layers = (propose(proposing.asked(model, 20, 4, layers=flag)) for flag in (False, True))
    assert mapping.token.tolist() == layers.token.tolist()
    assert mapping.draft_probs[:, [0, 1]].tolist() == layers.draft_probs[:, [0, 1]].tolist()
    assert mapping.token.shape == (20, 3) and mapping.draft_probs.shape == (20, 4, 3)


def test_point_takes_the_most_probable_lower_ids_first() -> None:
    found = propose(ProposalCase([ROOT, BELOW], np.array([-1, -1, -1, 1]), "point", 2, 0))
    assert found.token.tolist() == [[0, 1, 2, 1]] * 2
    assert found.draft_probs[0, 0].tolist() == ROOT.tolist()
    assert found.draft_probs[0, 2].tolist() == BELOW[1].tolist()


def test_confidences_may_omit_mass_and_laws_may_not() -> None:
    short = [np.array([0.5, 0.125, 0.0])]
    assert propose(ProposalCase(short, np.array([-1]), "point", 1, 0)).token.tolist() == [[0]]
    with pytest.raises(BadInput, match="sums to one"):
        propose(ProposalCase(short, np.array([-1]), "iid", 1, 0))
    with pytest.raises(BadInput, match=r"case.table\[0\] = 1.5: .*sums to at most one"):
        propose(ProposalCase([np.array([0.75, 0.75])], np.array([-1]), "point", 1, 0))


@pytest.mark.parametrize("proposal", ["iid", "without_replacement"])
def test_the_drafts_follow_the_model(proposal: str) -> None:
    """Null: the law enumerated from the table; α = 1e-9; a distance of 0.05 is seen with power above 0.99."""
    model = proposing.model(proposal)
    law = dict(model.drafted())
    counts = Counter(tuple(row) for row in propose(proposing.asked(model, 20_000, 7)).token.tolist())
    assert set(counts) <= set(law)
    process = EProcess([float(law[k]) for k in sorted(law)], 1e-9)
    process.update([counts[k] for k in sorted(law)])
    assert not process.alarmed


def test_rows_of_leaves_beyond_the_table_are_zero() -> None:
    found = propose(ProposalCase([ROOT], np.array([-1]), "iid", 1, 3))
    assert found.draft_probs[0, 1].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("leaf", "shown"),
    [
        ([np.nan, 7.0, -1.0], [np.nan, 7.0, -1.0]),
        ([0, 2, 0], [0, 2, 0]),
        ([0.5, 0.5], [0, 0, 0]),
        (["a", "b", "c"], [0, 0, 0]),
        ([[1.0], [1.0, 2.0]], [0, 0, 0]),
        (None, [0, 0, 0]),
    ],
)
def test_rows_of_leaves_are_not_validated(leaf: object, shown: list[float]) -> None:
    table: dict[tuple[int, ...], object] = {(): [0, 1, 0], (1,): leaf}
    found = propose(ProposalCase(table, np.array([-1]), "iid", 2, 3))  # type: ignore[arg-type]
    assert np.array_equal(found.draft_probs[:, 1], [shown] * 2, equal_nan=True)
    alone = propose(ProposalCase([np.full(3, np.nan)], np.array([], dtype=np.int64), "iid", 1, 3))
    assert np.isnan(alone.draft_probs[0, 0]).all(), "a root without children is a leaf"


@pytest.mark.parametrize("layer", [np.full((3, 3), np.nan), ROOT, [[0.5], [0.5, 0.5]], None])
def test_layers_of_leaves_are_not_validated(layer: object) -> None:
    found = propose(ProposalCase([ROOT, layer], np.array([-1]), "iid", 1, 3))  # type: ignore[list-item]
    assert found.draft_probs[0, 0].tolist() == ROOT.tolist()


@pytest.mark.parametrize("table", [[ROOT * np.nan], {(): [7.0, 7.0, 7.0]}, [ROOT, ROOT]])
def test_without_trials_only_the_length_of_the_root_is_read(table: object) -> None:
    found = propose(ProposalCase(table, TREE, "iid", 0, 3))  # type: ignore[arg-type]
    assert found.token.shape == (0, 3) and found.draft_probs.shape == (0, 4, 3)


def test_rows_of_integers_and_fractions_are_laws() -> None:
    table = {(): [0, 1, 0], (1,): [Fraction(1), 0, 0.0]}
    found = propose(ProposalCase(table, np.array([-1, 0]), "iid", 1, 3))
    assert found.token.tolist() == [[1, 0]]
    assert found.draft_probs[0, :2].tolist() == [[0, 1, 0], [1, 0, 0]]


def test_what_is_not_reached_is_not_read() -> None:
    poison = {(): ROOT, (0,): [0.5, 0.5, 0.0], (1,): [np.nan] * 3, (2,): [7.0, 0.0, 0.0]}
    found = propose(ProposalCase(poison, np.array([-1, 0]), "point", 1, 0))
    assert found.token.tolist() == [[0, 0]]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"proposal": "typical"}, "case.proposal .*: a proposal is one of"),
        ({"trials": -1}, "case.trials"),
        ({"trials": True}, "case.trials"),
        ({"seed": -3}, "seed = -3: a seed is a non-negative integer"),
        ({"parent": np.array([0])}, r"case.parent\[0\] = 0: a parent"),
        ({"parent": np.array([[-1]])}, "case.parent .*is a vector"),
        ({"table": []}, "case.table"),
        ({"table": [ROOT, ROOT]}, r"case.table\[1\] .*shape"),
        (
            {"table": {(): [0.5, 0.5], (0,): [1.0], (1,): [1.0]}, "parent": np.array([-1, 0])},
            r"case.table\[\(\d,\)\] = .*vector of 2",
        ),
        ({"table": {(): [0.5, 0.6]}}, "sums to one"),
        ({"table": {(): [-0.5, 1.5]}}, r"case.table\[\(\)\]\[0\] = -0.5"),
        ({"table": {(): ROOT}}, r"case.table\[\(\d,\)\]: the table has a row for each prefix"),
        ({"table": [[1.0], [[math.nan]]], "parent": np.array([-1, 0])}, r"case.table\[1\]\[0\]\[0\] = 'nan'"),
        ({"table": {(): [10**400, 0]}}, "vector of 2 real numbers"),
        ({"table": {(): [True, False]}}, "vector of 2 real numbers"),
        ({"table": {(): [[0.5], [0.5, 0.1]]}}, r"case.table\[\(\)\] .*is an array"),
        ({"table": [ROOT, [[0.1], [0.2, 0.8], [1.0]]]}, r"case.table\[1\] .*is an array"),
        ({"table": None}, "case.table = 'NoneType': is a sequence of layers, or a mapping"),
        ({"table": 3}, "case.table = 'int': is a sequence"),
        ({"trials": 10**30}, r"case.trials .*a number of trials below 2\*\*31"),
        ({"proposal": np.array(["iid", "point"])}, "case.proposal .*: a proposal is one of"),
        ({"parent": [[1], [1, 2]]}, "case.parent .*is an array"),
        ({"parent": np.array([-1, 0, 1])}, r"case.table\[2\]: .*a row for each prefix"),
        ({"parent": np.array([-1] * 4), "proposal": "point"}, r"case.parent\[3\]: siblings of a 'point' proposal"),
        ({"parent": np.array([-1] * 4), "proposal": "without_replacement"}, r"case.parent\[3\]"),
    ],
)
def test_bad_input_names_field_index_and_rule(change: dict[str, object], words: str) -> None:
    fields: dict[str, object] = {
        "table": [ROOT, BELOW],
        "parent": TREE,
        "proposal": "iid",
        "trials": 2,
        "seed": 1,
    }
    with pytest.raises(BadInput, match=words):
        propose(ProposalCase(**(fields | change)))  # type: ignore[arg-type]


def test_the_same_seed_gives_the_same_drafts() -> None:
    case = proposing.asked(proposing.model("iid"), 50, 9)
    assert propose(case).token.tolist() == propose(case).token.tolist()
