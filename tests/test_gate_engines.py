"""The gate's side of an engine: its logits within rounding, its conventions, and every way of giving no answer."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.gate import numeric
from conformance.gate.request import REFERENCE
from conformance.gate.verdict import FIT, NOT_JUDGED, UNFIT
from conformance.gate.weights import drawn, strange
from conformance.manifest.cases import Recipe, make
from oracle.manifest.opened import open_release
from oracle.types import ReleaseCase
from tests.test_cli import call
from tests.test_gate import judged, part

ENGINE = """
import dataclasses
import os
import sys
import time

import numpy as np

from adapters.interface import Arithmetic, Declaration, NotApplicable
from oracle import drafter
from oracle.types import DraftRollout

DECLARATION = Declaration("engine", "2.0", conventions=CONVENTIONS, arithmetic=Arithmetic(dtype="DTYPE"))


def draft_logits(case):
    FIRST
    found = drafter.draft_logits(case)
    LAST
    return found
"""


def engine(folder: Path, monkeypatch: pytest.MonkeyPatch, **parts: str) -> str:
    """An engine that is right but for these parts, where its process finds it."""
    text = ENGINE
    for name, default in (("CONVENTIONS", "{}"), ("DTYPE", "float64"), ("FIRST", "pass"), ("LAST", "pass")):
        text = text.replace(name, parts.get(name, default))
    (folder / "their_engine.py").write_text(text, encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    return "their_engine"


def served(
    folder: Path, monkeypatch: pytest.MonkeyPatch, layout: str = "specforge", sin: str = "nothing", **parts: str
) -> tuple[int, dict[str, Any], str]:
    """The gate's verdict on a release and an engine: exit code, report, and what was printed."""
    name = engine(folder, monkeypatch, **parts)
    return judged(make(Recipe(layout, sin, 6), folder), folder, "--impl", name, "--timeout", 60)


@pytest.mark.parametrize("layout", ["eagle", "eagle3", "specforge", "speculators", "vllm", "serving"])
def test_an_engine_that_computes_what_was_trained_is_fit(layout: str, tmp_path: Path) -> None:
    case = make(Recipe(layout, "nothing", 6), tmp_path)
    code, document, output = judged(case, tmp_path, "--impl", "adapters.reference")
    found = part(document, "implementation")
    assert (code, found["word"], document["served_by"]) == (0, FIT, "reference 0.1.0")
    assert found["numbers"]["largest_distance"] <= found["numbers"]["largest_bound"] < 1e-9
    assert "server   reference 0.1.0 (--impl=adapters.reference)" in output


WRONG = {
    "logits of a normed state": "found = DraftRollout(found.logits * 1.001, found.states)",
    "rollout begins with the prefix's state": "found.logits[1] = found.logits[0]",
    "one logit": "found.logits[-1, -1] += 1e-6",
    "states": "found.states[1] += 1e-6",
}


@pytest.mark.parametrize("fault", WRONG)
def test_an_engine_that_computes_something_else_is_unfit(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, document, _ = served(tmp_path, monkeypatch, LAST=WRONG[fault])
    found = part(document, "implementation")
    assert (code, found["word"]) == (1, UNFIT) and len(found["findings"]) >= 1
    assert part(document, "step")["word"] == FIT


def test_an_engine_that_swaps_the_fusion_is_unfit_by_word_and_by_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swapped = "case = dataclasses.replace(case, config={**case.config, 'fusion_order': 'feature_first'})"
    conventions = "{'fusion_order': 'feature_first', 'position_base': '0.0', 'last_row': 'pad'}"
    code, document, output = served(tmp_path, monkeypatch, "eagle", FIRST=swapped, CONVENTIONS=conventions)
    (told,) = part(document, "conventions")["findings"]
    assert code == 1 and part(document, "implementation")["word"] == part(document, "conventions")["word"] == UNFIT
    assert told["field"] == "conventions.fusion_order" and "embedding_first" in told["message"]
    agree = {one["name"]: one["agree"] for one in document["conventions"]}
    assert agree == {"fusion_order": False, "position_base": True, "last_row": None}
    assert "convention fusion_order: trainer embedding_first, server feature_first: DISAGREE" in output


def test_conventions_that_both_sides_share_are_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conventions = "{'draft_map': 'offset', 'position_base': '0'}"
    code, document, _ = served(tmp_path, monkeypatch, CONVENTIONS=conventions)
    assert code == 0 and part(document, "conventions")["word"] == FIT
    code, document, _ = judged_again(tmp_path, CONVENTIONS="{'draft_map': 'absolute'}", monkeypatch=monkeypatch)
    assert code == 1 and part(document, "conventions")["findings"][0]["field"] == "conventions.draft_map"
    code, document, _ = judged_again(tmp_path, CONVENTIONS="{}", monkeypatch=monkeypatch)
    assert code == 0 and part(document, "conventions")["word"] == NOT_JUDGED


def judged_again(folder: Path, monkeypatch: pytest.MonkeyPatch, **parts: str) -> tuple[int, dict[str, Any], str]:
    case = ReleaseCase(folder / "manifest.toml", folder / "drafter", folder / "target")
    return judged(case, folder, "--impl", engine(folder, monkeypatch, **parts))


ROUNDED = """
    def cut(values):
        with np.errstate(over='ignore'):
            return (np.ascontiguousarray(values, '<f4').view('<u4') + 0x8000 & 0xffff0000).view('<f4').astype(float)
    found = DraftRollout(cut(found.logits), cut(found.states))
"""


def test_an_engine_may_round_in_the_dtype_that_it_declares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, document, _ = served(tmp_path, monkeypatch, DTYPE="bfloat16", LAST=ROUNDED)
    found = part(document, "implementation")
    assert (code, found["word"]) == (0, FIT), found
    assert found["numbers"]["largest_bound"] > 1e-3 and "bfloat16" in found["reason"]
    code, document, _ = judged_again(tmp_path, monkeypatch, DTYPE="float32", LAST=ROUNDED)
    assert code == 1 and part(document, "implementation")["word"] == UNFIT


def test_a_bound_as_wide_as_the_logits_decides_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A constant would pass, too."""
    monkeypatch.setattr(numeric, "DTYPES", {**numeric.DTYPES, "bfloat16": 0.5})
    code, document, _ = served(tmp_path, monkeypatch, DTYPE="bfloat16")
    assert code == 2 and "as far as they lie apart" in part(document, "implementation")["reason"]


NO_ANSWER = {
    "raise ValueError('no such head')": "ValueError: no such head",
    "raise NotApplicable('it serves no EAGLE-3')": "it serves no EAGLE-3",
    "import no_such_engine": "No module named 'no_such_engine'",
    "os._exit(0)": "ended with code 0",
    "os.kill(os.getpid(), 9)": "ended with code -9",
    "sys.exit(0)": "ended with code 0",
    "print('lost', file=sys.stderr); sys.exit(3)": "ended with code 3 and no answer: … lost",
}


@pytest.mark.parametrize("first", NO_ANSWER)
def test_an_engine_that_does_not_answer_is_not_judged(
    first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, document, output = served(tmp_path, monkeypatch, FIRST=first)
    found = part(document, "implementation")
    assert (code, document["word"], found["word"]) == (2, NOT_JUDGED, NOT_JUDGED)
    assert NO_ANSWER[first] in found["reason"] and output.splitlines()[-1].startswith("could not judge: ")


def test_an_engine_that_hangs_is_ended_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive = tmp_path / "alive"
    first = f"os.fork() or [open({str(alive)!r}, 'a').write('.') and time.sleep(0.05) for _ in range(10**6)]"
    name = engine(tmp_path, monkeypatch, FIRST=f"{first}; time.sleep(3600)")
    case = make(Recipe("specforge", "nothing", 6), tmp_path)
    start = time.monotonic()
    code, document, _ = judged(case, tmp_path, "--impl", name, "--timeout", 5)
    assert code == 2 and "within 5 s" in part(document, "implementation")["reason"] and time.monotonic() - start < 30
    written = alive.stat().st_size if alive.exists() else 0
    time.sleep(0.3)
    assert (alive.stat().st_size if alive.exists() else 0) == written


@pytest.mark.parametrize(
    ("impl", "why"),
    [
        ("adapters.nowhere", "cannot import"),
        ("adapters.interface", "DECLARATION"),
        ("adapters.tiny_losses", "DECLARATION"),
        ("adapters.transformers", "no draft_logits"),
    ],
)
def test_an_engine_that_has_no_step_is_not_judged(impl: str, why: str, tmp_path: Path) -> None:
    code, document, _ = judged(make(Recipe("eagle", "nothing", 1), tmp_path), tmp_path, "--impl", impl)
    assert code == 2 and why in part(document, "implementation")["reason"]
    assert part(document, "conventions")["word"] in (NOT_JUDGED, FIT)


def test_a_python_that_has_not_the_suite_is_not_judged(tmp_path: Path) -> None:
    case = make(Recipe("eagle", "nothing", 1), tmp_path)
    options = ("--impl", "adapters.reference", "--python")
    assert judged(case, tmp_path, *options, tmp_path / "nowhere")[0] == 2
    (tmp_path / "python").write_text("#!/bin/sh\necho 'No module named conformance' >&2\nexit 1\n", encoding="utf-8")
    (tmp_path / "python").chmod(0o755)
    code, document, _ = judged(case, tmp_path, *options, tmp_path / "python")
    assert code == 2 and "No module named conformance" in part(document, "implementation")["reason"]


@pytest.mark.parametrize(
    ("last", "told"),
    [
        ("found = None", "logits"),
        ("found = DraftRollout(found.logits[:-1], found.states[:-1])", "has shape"),
        ("found = DraftRollout(found.logits[:, :-1], found.states)", "has shape"),
        ("found.logits[2, 3] = np.nan", "logits[2][3]"),
        ("found.states[0, 0] = np.inf", "states[0][0]"),
        ("found = DraftRollout(found.logits.astype(int), found.states)", "int64"),
    ],
)
def test_an_answer_that_is_none_is_unfit(last: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, document, output = served(tmp_path, monkeypatch, LAST=last)
    assert (code, part(document, "implementation")["word"]) == (1, UNFIT) and told in output


def test_a_broken_release_is_unfit_whatever_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not asked, and what it declares is shown all the same."""
    conventions = "{'draft_map': 'offset'}"
    sin = "without_fc"
    code, document, _ = served(tmp_path, monkeypatch, sin=sin, FIRST="os._exit(0)", CONVENTIONS=conventions)
    assert code == 1 and document["conventions"] and document["served_by"] == "engine 2.0"
    assert part(document, "implementation") == part(document, "implementation") | {"word": NOT_JUDGED, "wanted": False}


def test_what_the_step_has_no_notion_of_is_not_judged(tmp_path: Path) -> None:
    case = make(Recipe("modelopt", "nothing", 1), tmp_path)
    code, document, _ = judged(case, tmp_path, "--impl", "adapters.reference")
    assert code == 2 and "rope_type 'linear'" in part(document, "implementation")["reason"]
    code, output = call("reference", case.drafter, "--target", case.target, "--manifest", case.manifest)
    assert code == 2 and "rope_type" in output and not (tmp_path / REFERENCE).exists()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("norm_before_residual", True),
        ("norm_output", True),
        ("num_hidden_layers", 2),
        ("hidden_act", "gelu"),
        ("model_type", "gemma2"),
        ("partial_rotary_factor", 0.5),
        ("logit_scale", 0.25),
        ("rope_interleaved", True),
        ("eagle_config", {"use_last_layernorm": False}),
        ("target_hidden_size", 64),
        ("fc_norm", True),
    ],
)
def test_settings_that_change_the_arithmetic_are_told(key: str, value: object, tmp_path: Path) -> None:
    case = make(Recipe("specforge", "no_manifest", 1), tmp_path)
    path = case.drafter / "config.json"
    assert list(strange(open_release(case))) == []
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), key: value}), encoding="utf-8")
    assert list(strange(open_release(case)))


def test_what_is_drawn_is_held_by_every_dtype(tmp_path: Path) -> None:
    release = open_release(make(Recipe("eagle3", "nothing", 1), tmp_path))
    one, other = drawn(release, 0), drawn(release, 1)
    assert np.array_equal(one.features, drawn(release, 0).features) and not np.array_equal(one.features, other.features)
    kept = np.ascontiguousarray(one.features, "<f4").view("<u4")
    assert not (kept & 0xFFFF).any() and np.array_equal(one.features, one.features.astype(np.float16))
    assert len(set(one.tokens.tolist() + one.rollout_tokens.tolist())) == 9
    assert release.drafter.config["vocab_size"] - 1 in one.tokens


# ---- references by an engine


def test_logits_of_an_engine_are_stored_with_their_dtype(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = engine(tmp_path, monkeypatch, DTYPE="bfloat16", LAST=ROUNDED)
    case = make(Recipe("specforge", "nothing", 6), tmp_path)
    release = (case.drafter, "--target", case.target, "--manifest", case.manifest)
    code, output = call("reference", *release, "--impl", name)
    assert code == 0 and "by engine 2.0" in output
    code, document, _ = judged(case, tmp_path)
    assert code == 0 and "bfloat16" in part(document, "reference")["reason"]


@pytest.mark.parametrize(
    "parts", [{"FIRST": "os._exit(0)"}, {"LAST": "found.logits[0] *= 2"}, {"LAST": "found.logits[0, 0] = np.nan"}]
)
def test_logits_that_are_not_the_drafters_are_not_stored(
    parts: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = engine(tmp_path, monkeypatch, **parts)
    case = make(Recipe("specforge", "nothing", 6), tmp_path)
    release = (case.drafter, "--target", case.target, "--manifest", case.manifest)
    code, output = call("reference", *release, "--impl", name)
    assert code == 2 and output.startswith("eagle-conformance: ") and not (tmp_path / REFERENCE).exists()


def test_an_adapter_without_a_step_of_its_own_is_asked_through_its_variant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "their_variant.py").write_text(
        "from adapters import reference\n"
        "from adapters.interface import Declaration\n"
        "DECLARATION = Declaration('engine', '2.0')\n"
        "class drafter:\n"
        "    DECLARATION = Declaration('engine, drafters', '2.0')\n"
        "    draft_logits = staticmethod(reference.draft_logits)\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    code, document, output = judged(make(Recipe("specforge", "nothing", 6), tmp_path), tmp_path, "--impl=their_variant")
    assert (code, part(document, "implementation")["word"]) == (0, FIT)
    assert document["served_by"] == "engine, drafters 2.0" and "engine, drafters 2.0" in output
