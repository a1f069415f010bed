"""The manifest: its document and schema, the layouts and what they say, the rules of a release, hostile checkpoints."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import re
import tomllib
import tracemalloc
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from conformance.manifest.cases import GOOD, HOSTILE, REFILED, Recipe, expected, first, made, make, of
from conformance.manifest.filing import numbers, toml
from conformance.manifest.hostile import MARKER
from conformance.manifest.releases import MAKERS
from conformance.manifest.sins import SINS
from oracle.errors import BadInput
from oracle.manifest import document, layouts
from oracle.manifest.checkpoint import read_checkpoint
from oracle.manifest.document import FORMAT, Manifest, as_table, from_table, merged, read_manifest, unsaid
from oracle.manifest.layouts import read_layout
from oracle.manifest.opened import open_release
from oracle.manifest.release import RULES, check_release
from oracle.types import ReleaseCase

SCHEMA = Path(document.__file__).parent / "schema" / "manifest.v1.json"
DIGEST = "sha256:" + "0f" * 32
WHOLE: dict[str, Any] = {
    "format": FORMAT,
    "variant": "eagle3",
    "layout": "specforge",
    "target": {
        "name": "tiny/target",
        "config": DIGEST,
        "weights": DIGEST,
        "tokenizer": DIGEST,
        "vocabulary_size": 128256,
        "hidden_size": 4096,
    },
    "features": {
        "layers": [1, 15, 28],
        "final_norm": "before",
        "layout": "side_by_side",
        "input_norm": "none",
        "dtype": "bfloat16",
        "made_from": DIGEST,
    },
    "head": {"identity": "own", "digest": DIGEST},
    "embedding": {"identity": "target", "digest": DIGEST},
    "map": {"size": 32000, "convention": "offset", "digest": DIGEST},
    "conventions": {
        "fusion_order": "embedding_first",
        "position_base": 0,
        "mask_owner": "source",
        "last_row": "drop",
        "row_anchor": "start",
        "rollout_position": "anchor_plus_step",
        "rollout_gradient": "flows",
        "first_row_fill": "none",
        "packing": "segments",
        "denominator": "supervised",
        "denominator_epsilon": 1e-5,
        "restricted_target": "renormalised",
        "gate": "argmax",
        "divergence": "cross_entropy",
        "reduction": "sum",
        "root_in_verification": "yes",
        "coin_scheme": "per_node",
        "accept_operator": "<",
        "accepted_count": "drafts",
        "residual": "state",
        "fed_back": "state",
        "draft_kv": "recomputed",
    },
    "dtype": {"weights": "bfloat16", "compute": "bfloat16"},
    "tree": {"root_counted": True, "depth": "drafts", "budget": 60, "maximum_depth": 7, "branch_width": 10},
    "training": {
        "objective": "hass",
        "regression": 1.0,
        "classification": 0.1,
        "top_k": 10,
        "top_k_weight": 1.0,
        "step_weights": [1.0, 0.8, 0.64],
    },
    "noise": {"law": "uniform", "amplitude": 0.05},
    "positions": {
        "maximum": 8192,
        "rope_theta": 500000.0,
        "rope_type": "llama3",
        "rope_factor": 8.0,
        "rope_layout": "half",
    },
}

# ---- the document


def test_the_whole_document_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "manifest.toml"
    path.write_text(toml(WHOLE))
    found = read_manifest(path)
    assert as_table(found) == WHOLE == tomllib.loads(path.read_text())
    assert unsaid(found) == []
    assert found.features.layers == (1, 15, 28)
    assert from_table(as_table(found)) == found


def test_what_is_unsaid_is_listed() -> None:
    found = from_table({"format": FORMAT, "map": {"size": 3}})
    assert as_table(found) == {"format": FORMAT, "map": {"size": 3}}
    assert set(document.keys()) - set(unsaid(found)) == {"map.size"}
    assert len(document.keys()) == sum(len(v) if isinstance(v, dict) else 1 for v in WHOLE.values()) - 1


def test_what_is_given_comes_before_what_is_inferred() -> None:
    given = from_table({"format": FORMAT, "map": {"size": 3}, "variant": "eagle3"})
    inferred = from_table({"format": FORMAT, "map": {"size": 4, "convention": "offset"}, "noise": {"law": "none"}})
    assert as_table(merged(given, inferred)) == {
        "format": FORMAT,
        "variant": "eagle3",
        "map": {"size": 3, "convention": "offset"},
        "noise": {"law": "none"},
    }


def test_the_schema_is_that_of_the_reader() -> None:
    assert json.loads(SCHEMA.read_text()) == document.schema(), "written by oracle.manifest.document.schema"


def mutants() -> list[tuple[str, dict[str, Any]]]:
    """The whole document with one change: each key by each of these values, left out, or beside an unknown one."""
    values = (
        *(-1, 0, 1, 1.0, 2.5, 2**53, 2**53 + 2, True, "", "own", "eagle1", "<=", "none", DIGEST, DIGEST + "0"),
        *([], [0], [1, 2.5], ["a"], [-1], list(range(65)), {}, {"size": 1}, "a\nb", "x" * 41, "x" * 201),
    )
    found = [("whole", WHOLE)]
    for section, entries in WHOLE.items():
        for key in [None, *(entries if isinstance(entries, dict) else ())]:
            for value in (*values, None):
                changed = copy.deepcopy(WHOLE)
                holder, last = (changed, section) if key is None else (changed[section], key)
                if value is None:
                    del holder[last]
                else:
                    holder[last] = value
                found.append((f"{section}.{key} = {value!r:.30}", changed))
        if isinstance(entries, dict):
            changed = copy.deepcopy(WHOLE)
            changed[section]["colour"] = 1
            found.append((f"{section}.colour", changed))
    return [*found, ("colour", {**WHOLE, "colour": 1}), ("nothing", {}), ("format alone", {"format": FORMAT})]


def test_schema_and_reader_accept_the_same_documents() -> None:
    judge = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))
    accepted = 0
    for name, table in mutants():
        try:
            from_table(table)
            read = True
        except BadInput:
            read = False
        assert judge.is_valid(table) == read, name
        accepted += read
    assert 100 < accepted < len(mutants()) - 100, "both kinds are among them"


REFUSED = {
    "unknown": ("colour = 1", "manifest.toml: colour: is no key; known ones are variant, layout, target"),
    "unknown inside": (
        "[map]\nsice = 1",
        "manifest.toml: map.sice: is no key; known ones are size, convention, digest",
    ),
    "type": ('[map]\nsize = "3"', "manifest.toml: map.size = '3': is a whole number of at least 1"),
    "value": ('variant = "eagle2"', "manifest.toml: variant = 'eagle2': is one of eagle1, eagle3, eagle3_projected"),
    "section": ("map = 3", "manifest.toml: map = 'int': is a table"),
    "list": (
        "[features]\nlayers = [1, -2]",
        "manifest.toml: features.layers = [1, -2]: is a list of 1 to 64, each of which is a whole number of at least 0",
    ),
    "nan": ("[noise]\namplitude = nan", "manifest.toml: noise.amplitude = nan: is a finite number of at least 0"),
    "date": ("variant = 2020-01-01", "manifest.toml: variant = datetime.date(2020, 1, 1): is one of"),
    "syntax": ("= 1", "manifest.toml: is TOML in UTF-8: "),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_documents_are_named(name: str, tmp_path: Path) -> None:
    text, message = REFUSED[name]
    path = tmp_path / "manifest.toml"
    path.write_text(f'format = "{FORMAT}"\n{text}\n')
    with pytest.raises(BadInput, match="^" + re.escape(message)):
        read_manifest(path)


def test_documents_have_a_size(tmp_path: Path) -> None:
    path = tmp_path / "manifest.toml"
    path.write_text(f'format = "{FORMAT}"\n' + "#" * document.LIMIT_BYTES)
    with pytest.raises(BadInput, match="has at most 1048576 bytes"):
        read_manifest(path)
    path.write_text('format = "eagle-conformance/manifest/2"\n')
    with pytest.raises(
        BadInput, match=re.escape(f"manifest.toml: format = 'eagle-conformance/manifest/2': is {FORMAT!r}")
    ):
        read_manifest(path)


# ---- layouts


@pytest.mark.parametrize("layout", MAKERS)
def test_a_layout_is_known_and_says_what_it_says(layout: str, tmp_path: Path) -> None:
    parts = MAKERS[layout](3)
    case = make(Recipe(layout, "nothing", 3), tmp_path)
    found = read_layout(read_checkpoint(case.drafter))
    said, eagle1 = found.manifest, layout == "eagle"
    assert (found.layout, said.layout) == (layout, layout)
    left = None if layout in ("eagle", "eagle3", "serving") else tuple(parts.layers or ())
    assert said.features.layers == left
    assert said.variant == (None if eagle1 else "eagle3")
    assert said.features.final_norm == ("after" if eagle1 else "before")
    assert said.map.size == (len(parts.ids) if parts.ids else None)
    assert said.map.convention == ("offset" if parts.ids else None)
    assert said.positions.rope_theta == parts.settings["rope_theta"]
    assert (said.positions.rope_type, said.positions.rope_factor) == (
        ("linear", 2.0) if layout == "modelopt" else ("default", None)
    )
    assert said.target.name == ("tiny/target" if layout == "speculators" else None)
    assert set(found.unsaid) == set(unsaid(said))
    assert {"training.objective", "target.weights", "noise.law"} <= set(found.unsaid)
    assert ("features.layers" in found.unsaid) == (left is None)
    assert from_table(as_table(said)) == said, "what is inferred can be written down"


def test_addresses_are_translated() -> None:
    assert layouts.translated((2, 16, 29), "vllm") == layouts.translated((2, 16, 29), "speculators") == (1, 15, 28)
    assert layouts.translated((1, 15, 28), "specforge") == layouts.translated((1, 15, 28), "modelopt") == (1, 15, 28)
    assert layouts.translated((1, 15, 28), "serving") is None
    assert layouts.translated(None, "vllm") is None


def test_rotary_settings_of_both_spellings() -> None:
    old = layouts.positions({"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2}})
    new = layouts.positions({"rope_parameters": {"rope_theta": 500000, "rope_type": "linear", "factor": 2.0}})
    assert old == new
    assert (old.rope_theta, old.rope_type, old.rope_factor, old.rope_layout) == (5e5, "linear", 2.0, "half")
    assert layouts.positions({"rope_interleave": True}).rope_layout == "interleaved"
    assert layouts.positions({}).rope_type is None


# ---- releases


EVERY = [
    *first([name for name, one in SINS.items() if one.clause]),
    *(Recipe(*pair, 17) for pair in of(GOOD + REFILED)),
]


@pytest.mark.parametrize("recipe", EVERY, ids=lambda r: f"{r.sin}-{r.layout}")
def test_a_release_breaks_what_it_was_made_to_break(recipe: Recipe) -> None:
    with made(recipe) as case:
        found = check_release(case)
    assert {one.clause for one in found} == expected(recipe), found
    for one in found:
        assert one.field and ": " in one.message, "both values, then what goes wrong"


def test_there_are_as_many_as_the_issue_asks_for() -> None:
    assert len([one for one in SINS.values() if one.clause]) >= 30
    assert {one.clause for one in SINS.values() if one.clause} == set(RULES)
    assert len(MAKERS) >= 5


def test_two_faults_are_two_violations(tmp_path: Path) -> None:
    case = make(Recipe("eagle3", "shorter_context", 4), tmp_path)
    assert case.manifest is not None
    case.manifest.write_text(case.manifest.read_text().replace("position_base", "# position_base"))
    manifest = tomllib.loads(case.manifest.read_text())
    manifest["features"]["layers"][0] = 99
    case.manifest.write_text(toml(manifest))
    assert [one.clause for one in check_release(case)] == ["MANIFEST-502", "MANIFEST-601", "MANIFEST-601"]


def test_the_logit_that_is_told_is_reached(tmp_path: Path) -> None:
    """A state along w ⊙ g, normed as the drafter does, gives √d·‖w ⊙ g‖."""
    recipe = Recipe("specforge", "logits_beyond_float16", 8)
    parts = MAKERS["specforge"](8)
    gain = numbers(parts.drafter["norm.weight"]).astype(np.float64)
    row = np.full(len(gain), 29952.0)  # 30000 in bfloat16, cut
    state = row * gain
    normed = state / math.sqrt(float(np.mean(state * state))) * gain
    with made(recipe) as case:
        (found,) = check_release(case)
    assert f"{row @ normed:g}" in found.message
    assert np.all(np.abs(row) < 65504) and row @ normed > 65504


def test_nothing_is_judged_that_nobody_says(tmp_path: Path) -> None:
    """A document that says its version alone: what the configurations say is judged, and the rest is not."""
    case = make(Recipe("specforge", "nothing", 4), tmp_path)
    assert case.manifest is not None
    case.manifest.write_text(f'format = "{FORMAT}"\n')
    assert check_release(case) == []
    assert open_release(case).given == Manifest()
    assert open_release(case).said.features.layers is not None


def test_a_case_is_three_paths(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"^drafter = 'str': is a path"):
        check_release(ReleaseCase(None, str(tmp_path), tmp_path))  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"^case = 'int': a case is an oracle.types.ReleaseCase"):
        check_release(1)  # type: ignore[arg-type]


def test_progress_is_told(tmp_path: Path) -> None:
    case = make(Recipe("eagle", "nothing", 4), tmp_path)
    told: list[int] = []
    check_release(case, told.append)
    target = sum(one.size for one in read_checkpoint(case.target).tensors.values())
    assert sum(told) >= target


# ---- hostile checkpoints


LIMIT_BYTES = 48 * 2**20
"""What a header of the largest size, its text and its JSON take."""


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("layout", ["eagle3", "modelopt"])
def test_hostile_releases_are_refused_in_words(name: str, layout: str, tmp_path: Path) -> None:
    case = make(Recipe(layout, name, 6), tmp_path)
    tracemalloc.start()
    try:
        with pytest.raises(BadInput) as found:
            check_release(case)
        assert tracemalloc.get_traced_memory()[1] < LIMIT_BYTES
    finally:
        tracemalloc.stop()
    assert found.value.field and found.value.rule
    assert not (tmp_path / MARKER).exists(), "a pickled file was loaded"


def test_a_snapshot_of_a_cache_may_link_to_its_blobs(tmp_path: Path) -> None:
    """Hugging Face's cache keeps files in blobs, and links them from snapshots."""
    case = make(Recipe("eagle3", "nothing", 6), tmp_path)
    snapshot, blobs = tmp_path / "models--a--b" / "snapshots" / "1f", tmp_path / "models--a--b" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for path in case.drafter.iterdir():
        path.rename(blobs / path.name)
        (snapshot / path.name).symlink_to(Path("../../blobs") / path.name)
    linked = dataclasses.replace(case, drafter=snapshot)
    assert check_release(linked) == []
    (snapshot / "config.json").unlink()
    (snapshot / "config.json").symlink_to(case.target / "config.json")
    with pytest.raises(BadInput, match="no link leads out of the folder"):
        check_release(linked)
