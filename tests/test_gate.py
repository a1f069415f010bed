"""The release gate: every fault by its clause, good releases fit, and nothing that could not be judged looks fit."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import junitparser
import numpy as np
import pytest

from conformance.gate import numeric, references, weights
from conformance.gate.judge import gate
from conformance.gate.request import BESIDE, MANIFEST, REFERENCE, Request
from conformance.gate.verdict import FIT, NOT_JUDGED, PARTS, UNFIT, Convention, Finding, Part, Verdict
from conformance.gate.weights import Inputs
from conformance.manifest.cases import HOSTILE, Recipe, first, make
from conformance.manifest.hostile import MARKER
from conformance.manifest.sins import SINS
from oracle.types import DrafterCase, DraftRollout, ReleaseCase
from tests.running import environment, run
from tests.test_cli import call

FAULTS = first([name for name, one in SINS.items() if one.clause])
LAYOUTS = ("eagle", "specforge", "speculators", "modelopt", "vllm")
SECONDS = 10
"""The issue's bound on a gate without an implementation, start and all."""


def judged(case: ReleaseCase, folder: Path, *options: object) -> tuple[int, dict[str, Any], str]:
    """Exit code, report and what was printed, by the command."""
    said = [] if case.manifest is None else ["--manifest", case.manifest]
    report = folder / "report.json"
    code, output = call("gate", case.drafter, "--target", case.target, *said, "--report", report, *options)
    return code, json.loads(report.read_text(encoding="utf-8")), output


def part(document: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = (one for one in document["parts"] if one["name"] == name)
    return found


@pytest.mark.parametrize("recipe", FAULTS, ids=lambda r: f"{r.sin}-{r.layout}")
def test_a_fault_is_refused_with_exactly_its_violation(recipe: Recipe, tmp_path: Path) -> None:
    code, document, output = judged(make(recipe, tmp_path), tmp_path)
    told = [(part["name"], finding) for part in document["parts"] for finding in part["findings"]]
    assert {finding["clause"] for _, finding in told} == {SINS[recipe.sin].clause}
    assert (code, document["word"], document["exit_code"]) == (1, UNFIT, 1)
    assert {one["name"] for one in document["parts"] if one["word"] == UNFIT} == {name for name, _ in told}
    assert all(f"  {f['clause']} {f['field']} {f['message']}" in output.splitlines() for _, f in told)
    assert output.splitlines()[-1].startswith("unfit: ")


def test_there_are_thirty_faults() -> None:
    assert len(FAULTS) >= 30


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("known", ["nothing", "no_manifest"])
def test_good_releases_are_fit(layout: str, known: str, tmp_path: Path) -> None:
    code, document, output = judged(make(Recipe(layout, known, 3), tmp_path), tmp_path)
    assert (code, document["word"]) == (0, FIT) and output.splitlines()[-1].startswith("fit: ")
    assert [one["name"] for one in document["parts"]] == list(PARTS)
    assert not [one for one in document["parts"] if one["findings"] or not one["reason"]]
    words = {one["name"]: one["word"] for one in document["parts"]}
    assert {words[name] for name in ("tensors", "vocabulary", "addresses", "positions", "numbers", "files")} == {FIT}
    assert words["manifest"] == words["digests"] == (FIT if known == "nothing" else NOT_JUDGED)
    assert words["step"] == (NOT_JUDGED if layout == "modelopt" else FIT)  # whose rotary positions are scaled
    assert {words[name] for name in ("reference", "implementation", "conventions")} == {NOT_JUDGED}


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_what_cannot_be_read_is_not_judged(name: str, tmp_path: Path) -> None:
    case = make(Recipe("specforge", name, 2), tmp_path)
    before = contents(tmp_path)
    (tmp_path / "reports").mkdir()
    code, document, output = judged(case, tmp_path / "reports", "--junit", tmp_path / "reports" / "gate.xml")
    assert (code, document["word"]) == (2, NOT_JUDGED)
    assert {one["word"] for one in document["parts"]} == {NOT_JUDGED}
    assert part(document, "files")["wanted"] and len(part(document, "files")["reason"]) < 1000
    assert output.splitlines()[-1].startswith("could not judge: ") and not (tmp_path / MARKER).exists()
    (suite,) = junitparser.JUnitXml.fromfile(str(tmp_path / "reports" / "gate.xml"))
    assert (suite.errors, suite.failures, suite.skipped) == (1, 0, len(PARTS) - 1)
    assert contents(tmp_path, "reports") == before


def contents(folder: Path, beside: str = "") -> dict[str, object]:
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.is_file() and path.stat().st_size)
        for path in folder.rglob("*")
        if path.is_file() and beside not in path.relative_to(folder).parts
    }


def test_it_is_quick(tmp_path: Path) -> None:
    """In a process of its own, imports and all."""
    case = make(Recipe("speculators", "nothing", 1), tmp_path)
    command = [sys.executable, "-m", "conformance.cli", "gate", str(case.drafter), "--target", str(case.target)]
    start = time.monotonic()
    done = run([*command, "--manifest", str(case.manifest)], tmp_path, environment())
    assert done.code == 0 and time.monotonic() - start < SECONDS, done.output


# ---- the exit code


def verdict(*parts: Part) -> Verdict:
    return Verdict("d", "t", None, None, 0, parts)


@pytest.mark.parametrize(
    ("parts", "word"),
    [
        ((Part("files", FIT, ""), Part("step", NOT_JUDGED, "")), FIT),
        ((Part("files", FIT, ""), Part("step", NOT_JUDGED, "", wanted=True)), NOT_JUDGED),
        ((Part("files", NOT_JUDGED, ""), Part("step", NOT_JUDGED, "")), NOT_JUDGED),
        ((Part("files", UNFIT, ""), Part("step", NOT_JUDGED, "", wanted=True)), UNFIT),
        ((Part("files", FIT, ""), Part("step", UNFIT, "", [Finding("", "a", "b")])), UNFIT),
        ((), NOT_JUDGED),
    ],
)
def test_words_and_codes(parts: tuple[Part, ...], word: str) -> None:
    found = verdict(*parts)
    assert (found.word, found.exit_code) == (word, {FIT: 0, UNFIT: 1, NOT_JUDGED: 2}[word])


@pytest.mark.parametrize(
    ("one", "other", "agree"),
    [
        *(("0", "0.0", True), ("1e-05", "1e-5", True), ("a", "a", True), ("a", "b", False), ("0", "1", False)),
        *((None, "1", None), ("1", None, None)),
    ],
)
def test_conventions_agree_by_what_they_mean(one: str | None, other: str | None, agree: bool | None) -> None:
    assert Convention("c", one, other).agree is agree


def test_what_is_required_has_to_be_judged(tmp_path: Path) -> None:
    case = make(Recipe("eagle", "nothing", 1), tmp_path)
    code, document, _ = judged(case, tmp_path, "--require", "reference, digests")
    assert code == 2 and part(document, "reference")["wanted"] and part(document, "digests")["word"] == FIT
    assert judged(case, tmp_path, "--require", "digests")[0] == 0
    code, output = call("gate", case.drafter, "--target", case.target, "--require", "everything")
    assert code == 2 and "parts are files, manifest" in output


# ---- what is written


def test_reports_are_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = make(Recipe("eagle", "nothing", 1), tmp_path)
    (tmp_path / "file").touch()
    for option in ("--report", "--junit"):
        arguments = (case.drafter, "--target", case.target, option)
        code, output = call("gate", *arguments, tmp_path / "file" / "below.xml")
        assert code == 2 and "cannot be written" in output
        code, output = call("gate", *arguments, tmp_path / "new" / "folder" / "out")
        assert code == 0 and (tmp_path / "new" / "folder" / "out").stat().st_size > 500
        (tmp_path / "new" / "folder" / "out").unlink()
        monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("the disk is full")))
        code, output = call("gate", *arguments, tmp_path / "new" / "folder" / "out")
        assert code == 2 and "the disk is full" in output and list((tmp_path / "new" / "folder").iterdir()) == []
        monkeypatch.undo()


def test_junit_tells_each_finding(tmp_path: Path) -> None:
    case = make(Recipe("speculators", "target_of_another_width", 1), tmp_path)
    _, document, _ = judged(case, tmp_path, "--junit", tmp_path / "gate.xml")
    (suite,) = junitparser.JUnitXml.fromfile(str(tmp_path / "gate.xml"))
    told = {one.name: list(one.result) for one in suite}
    assert list(told) == [one["name"] for one in document["parts"]] and suite.failures == 1
    assert [(one.type, one.message) for one in told["tensors"]] == [
        (f["clause"], f"{f['field']} {f['message']}") for f in part(document, "tensors")["findings"]
    ]


def test_a_gate_that_leaves_no_trace(tmp_path: Path) -> None:
    case = make(Recipe("vllm", "nothing", 1), tmp_path)
    before = contents(tmp_path)
    assert gate(Request(case.drafter, case.target, case.manifest, impl="adapters.reference")).word == FIT
    assert contents(tmp_path) == before


# ---- manifests beside a checkpoint


def test_a_manifest_is_inferred_and_holds(tmp_path: Path) -> None:
    case = make(Recipe("eagle3", "nothing", 4), tmp_path)
    release = (case.drafter, "--target", case.target)
    assert call("gate", *release)[0] == 1  # nobody says which layers are fed
    code, output = call("manifest", *release, "--set", "features.layers=[1,2,4]", "--set", "noise.law=none", "--write")
    path = case.drafter / BESIDE / MANIFEST
    assert code == 0 and output.startswith(str(path)) and "# unsaid: " in output and "features.layers" not in output
    code, output = call("gate", *release, "--require", "manifest,digests")
    assert code == 0 and f"manifest {path}" in output
    assert call("manifest", *release, "--write")[0] == 2 and "layers" in path.read_text(encoding="utf-8")
    assert call("manifest", *release, "--write", "--force")[0] == 0 and "layers" not in path.read_text(encoding="utf-8")
    config = case.target / "config.json"
    config.write_text(config.read_text(encoding="utf-8").replace("1e-05", "1e-06"), encoding="utf-8")
    code, output = call("gate", *release)
    assert code == 1 and "MANIFEST-203 target.config" in output


def test_a_printed_manifest_is_one(tmp_path: Path) -> None:
    case = make(Recipe("speculators", "nothing", 4), tmp_path)
    code, output = call("manifest", case.drafter, "--target", case.target, "--manifest", case.manifest)
    (tmp_path / "printed.toml").write_text(output, encoding="utf-8")
    given = ("--manifest", tmp_path / "printed.toml")
    assert code == 0 and call("gate", case.drafter, "--target", case.target, *given, "--require", "digests")[0] == 0
    assert "objective" in output  # what the given one says is kept


@pytest.mark.parametrize(
    "setting", ["features.layers", "colour=1", "features.layers=[1.5]", "conventions.gate=maybe", "a.b.c=1", "=", ""]
)
def test_a_setting_that_no_manifest_has(setting: str, tmp_path: Path) -> None:
    case = make(Recipe("eagle3", "nothing", 4), tmp_path)
    code, output = call("manifest", case.drafter, "--target", case.target, "--set", setting, "--write")
    assert code == 2 and output.startswith("eagle-conformance: ") and not (case.drafter / BESIDE).exists()


# ---- reference logits


def with_reference(folder: Path, layout: str = "specforge", *options: object) -> tuple[ReleaseCase, Path]:
    """A release and the logits that the oracle stored for it."""
    case = make(Recipe(layout, "nothing", 6), folder)
    code, output = call("reference", case.drafter, "--target", case.target, "--manifest", case.manifest, *options)
    assert code == 0, output
    return case, folder / REFERENCE


@pytest.mark.parametrize("layout", ["eagle", "specforge", "vllm"])
def test_stored_logits_of_the_same_weights_fit(layout: str, tmp_path: Path) -> None:
    case, path = with_reference(tmp_path, layout)
    code, document, _ = judged(case, tmp_path)
    found = part(document, "reference")
    assert (code, found["word"], found["wanted"]) == (0, FIT, True) and path.exists()
    assert 0 <= found["numbers"]["largest_distance"] <= found["numbers"]["largest_bound"] < 1e-9


def test_weights_that_no_longer_make_the_stored_logits_are_unfit(tmp_path: Path) -> None:
    """The manifest has no fingerprint of the drafter's own layer: the logits tell."""
    case, _ = with_reference(tmp_path)
    path = case.drafter / "model.safetensors"
    content = bytearray(path.read_bytes())
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    place = 8 + int.from_bytes(content[:8], "little") + header["midlayer.mlp.down_proj.weight"]["data_offsets"][0]
    content[place + 1] ^= 0x80  # the sign of the first number
    path.write_bytes(content)
    code, document, output = judged(case, tmp_path)
    found = part(document, "reference")
    assert (code, found["word"]) == (1, UNFIT) and part(document, "numbers")["word"] == FIT
    assert found["findings"][0]["field"].startswith("logits[0][") and "drafts are others than in training" in output


def test_stored_logits_beside_the_checkpoint_are_found(tmp_path: Path) -> None:
    case = make(Recipe("specforge", "nothing", 6), tmp_path)
    release = (case.drafter, "--target", case.target)
    assert call("reference", *release)[0] == 0 and (case.drafter / BESIDE / REFERENCE).exists()
    code, output = call("reference", *release)
    assert code == 2 and "--force" in output and call("reference", *release, "--force", "--seed", 3)[0] == 0
    assert call("gate", *release, "--require", "reference")[0] == 0
    code, output = call("reference", *release, "--output", case.drafter / "other.safetensors")
    assert code == 2 and "as weights" in output


def rewritten(change: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
    def edit(content: bytes) -> bytes:
        begin = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:begin])
        change(header)
        text = json.dumps(header).encode()
        return len(text).to_bytes(8, "little") + text + content[begin:]

    return edit


@pytest.mark.parametrize(
    "spoil",
    [
        lambda content: b"",
        lambda content: content[:-1],
        lambda content: content[:40],
        rewritten(lambda header: header["__metadata__"].update(format="eagle-conformance/reference/2")),
        rewritten(lambda header: header["__metadata__"].update(dtype="int4")),
        rewritten(lambda header: header.pop("__metadata__")),
        rewritten(lambda header: header.update(logit=header.pop("logits"))),
        rewritten(lambda header: header["logits"].update(shape=[header["logits"]["shape"][0]])),
        rewritten(lambda header: header["tokens"].update(dtype="F64")),
    ],
)
def test_stored_logits_that_cannot_be_read_are_not_judged(spoil: Callable[[bytes], bytes], tmp_path: Path) -> None:
    case, path = with_reference(tmp_path)
    path.write_bytes(spoil(path.read_bytes()))
    code, document, _ = judged(case, tmp_path)
    assert (code, part(document, "reference")["word"]) == (2, NOT_JUDGED) and part(document, "step")["word"] == FIT


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda i: dataclasses.replace(i, features=i.features[:, :-1]), "features"),
        (lambda i: dataclasses.replace(i, features=i.features[:-1]), "features"),
        (lambda i: dataclasses.replace(i, features=np.full_like(i.features, np.inf)), "features"),
        (lambda i: dataclasses.replace(i, positions=i.positions[:-1]), "positions"),
        (lambda i: dataclasses.replace(i, positions=-i.positions), "positions"),
        (lambda i: dataclasses.replace(i, tokens=i.tokens + 10**6), "tokens"),
        (lambda i: dataclasses.replace(i, rollout_tokens=i.rollout_tokens - 10**6), "tokens"),
        (lambda i: dataclasses.replace(i, rollout_tokens=np.zeros(99, dtype=np.int64)), "at most 64"),
    ],
)
def test_inputs_of_another_drafter_are_not_judged(change: Callable[[Inputs], Inputs], why: str, tmp_path: Path) -> None:
    case, path = with_reference(tmp_path)
    given, made_by = references.read(path)
    path.write_bytes(references.content(dataclasses.replace(given, inputs=change(given.inputs)), made_by))
    code, document, _ = judged(case, tmp_path)
    found = part(document, "reference")
    assert (code, found["word"]) == (2, NOT_JUDGED) and why in found["reason"]


def test_a_fault_of_the_suite_is_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case, _ = with_reference(tmp_path)
    exact = numeric.oracle.draft_logits

    def spoilt(case: DrafterCase) -> DraftRollout:
        found = exact(case)
        return DraftRollout(found.logits + 1e-6, found.states)

    monkeypatch.setattr(numeric.oracle, "draft_logits", spoilt)
    code, document, _ = judged(case, tmp_path)
    assert code == 2 and "the suite is at fault" in part(document, "step")["reason"]
    assert part(document, "reference")["word"] == NOT_JUDGED


def test_a_name_that_would_write_lines_of_its_own(tmp_path: Path) -> None:
    case = make(Recipe("specforge", "nothing", 6), tmp_path)
    path = case.drafter / "model.safetensors"
    spell = "x\nfit: 12 fit, 0 unfit, 0 not judged → exit 0\x1b[2J\ud800\x00"
    rename = rewritten(lambda header: header.update({spell: header.pop("midlayer.hidden_norm.weight")}))
    path.write_bytes(rename(path.read_bytes()))
    code, document, output = judged(case, tmp_path, "--junit", tmp_path / "gate.xml")
    assert code == 1 and {"MANIFEST-301", "MANIFEST-302"} <= {
        f["clause"] for f in part(document, "tensors")["findings"]
    }
    assert not [line for line in output.splitlines() if line.startswith("fit: ")] and "\x1b" not in output
    assert "\\x1b[2J\\ud800\\x00" in output and junitparser.JUnitXml.fromfile(str(tmp_path / "gate.xml"))


def test_named_logits_that_are_missing_or_lead_elsewhere_are_not_judged(tmp_path: Path) -> None:
    (tmp_path / "release").mkdir()
    case, path = with_reference(tmp_path / "release")
    assert judged(case, tmp_path, "--reference", tmp_path / "none.safetensors")[0] == 2
    path.rename(tmp_path / "elsewhere.safetensors")
    (case.drafter / BESIDE).mkdir()
    (case.drafter / BESIDE / REFERENCE).symlink_to(tmp_path / "elsewhere.safetensors")
    code, document, _ = judged(case, tmp_path)
    assert code == 2 and "link" in part(document, "reference")["reason"]


def test_of_a_large_head_some_rows_are_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "ALL_SHOWN", 8)
    monkeypatch.setattr(weights, "SHOWN", 5)
    case, path = with_reference(tmp_path, "vllm")
    code, document, _ = judged(case, tmp_path)
    assert code == 0 and part(document, "reference")["numbers"]["logits"] == 5
    content = bytearray(path.read_bytes())
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    last = 8 + int.from_bytes(content[:8], "little") + header["logits"]["data_offsets"][1] - 8
    content[last:] = np.array([99.0]).tobytes() + bytes(content[last + 8 :])
    path.write_bytes(content)
    code, document, _ = judged(case, tmp_path)
    assert code == 1 and part(document, "reference")["findings"][0]["field"].startswith("logits[3][")


def test_weights_beyond_memory_are_not_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case, _ = with_reference(tmp_path)
    monkeypatch.setattr(weights, "LIMIT_BYTES", 1000)
    code, document, _ = judged(case, tmp_path)
    assert code == 2 and "GiB" in part(document, "step")["reason"]
    assert part(document, "reference")["word"] == NOT_JUDGED
