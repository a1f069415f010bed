"""The pair matrix: what a file holds, what differs in the tables, and the page that is made of them."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters import interface
from conformance.drafter import pairs as asking
from conformance.report import pairs
from conformance.report.model import ReportError
from conformance.report.table import replace
from conformance.roads import drafter as road
from conformance.roads.tape import Rounding

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "drafters.md"
FILES = sorted((ROOT / "docs" / "pairs").glob("*.json"))
ROLLOUTS = "adapters.faulty.drafter_rollout"
LAYERS = "adapters.faulty.drafter_layer"


def measured(spec: str, role: str = "trainer") -> dict[str, Any]:
    """A file as it reads back."""
    found = json.loads(asking.written(asking.measured(interface.load(spec), role)))
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module")
def reference() -> dict[str, Any]:
    return measured("adapters.reference", "both")


def side(document: dict[str, Any], path: Path) -> pairs.Side:
    path.write_text(json.dumps(document), encoding="utf-8")
    return pairs.read(path)


def doctored(document: dict[str, Any], step: int, share: float) -> dict[str, Any]:
    """A trainer like the reference, but for one logit that lies `share` of a pair's bound beside it."""
    other: dict[str, Any] = copy.deepcopy(document) | {"spec": "their.trainer", "role": "trainer"}
    answer = other["answers"]["eagle3"]["rollout"]
    answer["logits"][step][3] += share * 2 * answer["bounds"][step][3]
    return other


@pytest.mark.parametrize("step", [0, 2, 4])
def test_a_pair_that_differs_shows(reference: dict[str, Any], tmp_path: Path, step: int) -> None:
    right = side(reference, tmp_path / "right.json")
    near, far = (side(doctored(reference, step, share), tmp_path / "other.json") for share in (0.9, 1.1))
    assert "differs" not in pairs.cell(near, right, "eagle3")
    told = pairs.cell(far, right, "eagle3")
    assert f"`rollout` step {step}: differs by " in told and told.count("differs") == 1
    assert "differs" not in pairs.cell(far, right, "eagle1")
    table = pairs.tables([far, right])
    assert f"| `their.trainer` | {told} |" in table


@pytest.mark.parametrize(
    ("fault", "variant", "case", "step"),
    [
        (f"{ROLLOUTS}:FeedsBackNormed", "eagle3", "rollout", 1),
        (f"{ROLLOUTS}:FeedsBackTheFirstState", "eagle3", "rollout", 2),
        (f"{ROLLOUTS}:FusesTheStateAgain", "eagle3", "grouped_rollout", 1),
        (f"{ROLLOUTS}:RolloutForgetsItself", "eagle1", "rollout", 2),
        (f"{ROLLOUTS}:PositionOneLate", "eagle1", "served_rollout", 1),
        (f"{ROLLOUTS}:TokensOneStepLate", "eagle3", "served_rollout", 1),
        (f"{LAYERS}:NormsTwice", "eagle3", "prefix", 0),
        (f"{LAYERS}:NeighboursTurn", "eagle1", "prefix", 0),
        (f"{LAYERS}:BaseOfItsOwn", "eagle1", "rope_theta", 0),
        (f"{LAYERS}:HeadsTakeGroupsInTurn", "eagle3", "grouped", 0),
        (f"{LAYERS}:ScaledByHiddenOverHeads", "eagle3", "head_dim", 0),
        ("adapters.faulty.drafter:FusionWithoutBias", "eagle1", "fusion_bias", 0),
        ("adapters.faulty.drafter_head:MapIgnored", "eagle3", "reduced", 0),
    ],
)
def test_a_faulty_trainer_differs_at_its_step(
    reference: dict[str, Any], tmp_path: Path, fault: str, variant: str, case: str, step: int
) -> None:
    trainer, server = side(measured(fault), tmp_path / "fault.json"), side(reference, tmp_path / "reference.json")
    found = {f.case: f.step for f in pairs.compared(trainer, server, variant)}
    assert found[case] == step
    if step:
        assert found["prefix"] is None


@pytest.mark.parametrize("name", ["Float32", "SumsBackwards", "WithoutCache"])
def test_rounding_is_no_difference(reference: dict[str, Any], tmp_path: Path, name: str) -> None:
    one, other = side(measured(f"adapters.harmless.drafter:{name}"), tmp_path / "one.json"), tmp_path / "other.json"
    for variant in asking.CASES:
        assert all(found.step is None for found in pairs.compared(one, side(reference, other), variant))


def test_a_case_that_one_side_has_no_notion_of_is_told(reference: dict[str, Any], tmp_path: Path) -> None:
    other = copy.deepcopy(reference) | {"spec": "their.server", "role": "server"}
    other["answers"]["eagle1"] = {name: {"not_applicable": "it is EAGLE-3"} for name in other["answers"]["eagle1"]}
    other["answers"]["eagle3"]["head_dim"] = {"not_applicable": "heads are as wide as they are"}
    right, theirs = side(reference, tmp_path / "right.json"), side(other, tmp_path / "theirs.json")
    assert pairs.cell(right, theirs, "eagle1") == "not applicable: `their.server`: it is EAGLE-3"
    assert "head_dim" not in {found.case for found in pairs.compared(right, theirs, "eagle3")}
    table = pairs.tables([right, theirs])
    assert "- `their.server` does not answer `head_dim`: heads are as wide as they are." in table
    assert "their.server" not in table.partition("### EAGLE-3")[0]


def test_bounds_go_over_the_whole_rollout() -> None:
    """The first step's is that of a step alone; later ones cover what is fed back, and lie above a step's own."""
    case, rounding = asking.CASES["eagle3"]["rollout"], Rounding(2.0**-24, 2.0**-24)
    alone, chained = (road_of(case, rounding) for road_of in (road.rollout, road.chained))
    assert np.array_equal(alone[0].logits_off, chained[0].logits_off)
    for one, other in zip(alone, chained, strict=True):
        assert np.abs(one.logits - other.logits).max() < 1e-12
        assert (other.logits_off >= one.logits_off).all()
        assert other.logits_off.max() < 1e-2 * np.abs(other.logits).max(), "the bound is no absurd one"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "other"}, "format: this version reads"),
        ({"role": "judge"}, "role = 'judge'"),
        ({"answers": None}, "answers"),
    ],
)
def test_a_file_that_is_none_is_refused(
    reference: dict[str, Any], tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    document = {key: value for key, value in (reference | change).items() if value is not None}
    with pytest.raises(ReportError, match=words):
        side(document, tmp_path / "file.json")


def test_files_of_other_cases_are_not_compared(reference: dict[str, Any], tmp_path: Path) -> None:
    sides = [side(reference | {"cases": digest}, tmp_path / "file.json") for digest in ("one", "other")]
    with pytest.raises(ReportError, match="different cases"):
        pairs.tables(sides)


def test_the_page_holds_what_the_committed_files_say() -> None:
    """`make tables` writes it."""
    page, sides = PAGE.read_text(encoding="utf-8"), [pairs.read(path) for path in FILES]
    assert {"trainer", "server", "both"} == {one.role for one in sides}
    assert replace(page, pairs.PART, pairs.tables(sides)) == page


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_committed_files_are_made_of_the_cases_as_they_are(path: Path) -> None:
    """`make pairs` writes them."""
    one = pairs.read(path)
    assert one.cases == asking.digest()
    assert path.stem == one.spec.removeprefix("adapters.").translate(str.maketrans(":_", "--"))


def test_the_reference_answers_as_its_file_says(reference: dict[str, Any], tmp_path: Path) -> None:
    committed = pairs.read(ROOT / "docs" / "pairs" / "reference.json")
    for variant in asking.CASES:
        assert all(f.step is None for f in pairs.compared(side(reference, tmp_path / "now.json"), committed, variant))
