"""Structure: good releases pass, violations say what they have to say, files are left alone."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from typing import Any

import pytest

from conformance import clauses
from conformance.check import Check
from conformance.manifest.asking import FIELDS, OPERATION, WORDS_BESIDE, ask, judge
from conformance.manifest.cases import GOOD, Recipe, drawn, first, made, of
from conformance.manifest.files import contents
from conformance.verdicts import ClauseViolation
from oracle.types import ReleaseCase

Said = dict[str, Any]
BOTH: dict[str, tuple[str, Callable[[Said, Said, Said], tuple[object, object]]]] = {
    "another_vocabulary_told": ("401", lambda m, _, t: (m["target"]["vocabulary_size"], t["vocab_size"])),
    "another_width_told": ("304", lambda m, _, t: (m["target"]["hidden_size"], t["hidden_size"])),
    "run_as_eagle1": ("305", lambda m, _, t: (m["variant"], "eagle3")),
    "map_of_another_head": ("402", lambda m, d, _: (m["map"]["size"], d["draft_vocab_size"])),
    "shorter_context": ("601", lambda _, d, t: (d["max_position_embeddings"], t["max_position_embeddings"])),
    "other_rotary_type": ("602", lambda m, d, _: (m["positions"]["rope_type"], "default")),
    "cast_after_training": ("704", lambda m, d, _: (m["dtype"]["weights"], d["torch_dtype"])),
    "features_of_another_revision": (
        "207",
        lambda m, _, t: (m["features"]["made_from"], m["target"]["weights"]),
    ),
}
"""Fault → its clause, and the two values that disagree, from manifest, drafter's and target's configuration."""


@pytest.mark.clauses("MANIFEST-101")
def test_a_good_release_has_no_violation(check: Check) -> None:
    check.require(OPERATION)
    every = [Recipe(layout, name, 21 + i) for i, (layout, name) in enumerate(of(GOOD))]
    check.for_all(drawn(GOOD), lambda recipe: judge(check, recipe), first=every)


@pytest.mark.clauses("MANIFEST-102")
def test_a_violation_says_what_is_wrong(check: Check) -> None:
    check.require(OPERATION)
    known = set(clauses.clauses("manifest"))

    def body(recipe: Recipe) -> None:
        with made(recipe) as case:
            found = ask(check, case)
            one, other = BOTH[recipe.sin][1](*documents(case))
        for violation in found:
            texts = [getattr(violation, name) for name in FIELDS]
            if not all(isinstance(text, str) and text.strip() for text in texts):
                raise ClauseViolation(f"a violation is three texts; found {texts}")
            if violation.clause not in known:
                raise ClauseViolation(f"clause is {violation.clause!r}, which the specification does not have")
        about = [v for v in found if v.clause == f"MANIFEST-{BOTH[recipe.sin][0]}"]
        for violation in about[:1]:
            for value in (one, other):
                if not re.search(rf"(?<![\w.]){re.escape(str(value))}(?![\w])", violation.message):
                    raise ClauseViolation(f"{one!r} meets {other!r}, and the message is {violation.message!r}")
            rest = violation.message.replace(str(one), "").replace(str(other), "")
            if len(re.findall(r"[^\W\d]{2,}", rest)) < WORDS_BESIDE:
                raise ClauseViolation(f"the message does not say what goes wrong: {violation.message!r}")

    layouts = ("eagle3", "specforge")
    check.for_each([Recipe(layout, name, 31) for name in BOTH for layout in layouts], body)


@pytest.mark.clauses("MANIFEST-103")
def test_the_files_are_left_alone(check: Check) -> None:
    check.require(OPERATION)

    def body(recipe: Recipe) -> None:
        with made(recipe) as case:
            before = contents(case.drafter.parent)
            check.call(OPERATION, case)
            after = contents(case.drafter.parent)
        if changed := sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name)):
            raise ClauseViolation(f"{OPERATION} changed {', '.join(changed)}")

    check.for_each([*first(GOOD), Recipe("vllm", "nothing", 5), Recipe("specforge", "nan_weight", 5)], body)


def documents(case: ReleaseCase) -> tuple[Said, Said, Said]:
    """Manifest, and the two configurations."""
    if case.manifest is None:
        raise ValueError("the release has a manifest")
    configs = [
        json.loads((folder / "config.json").read_text(encoding="utf-8")) for folder in (case.drafter, case.target)
    ]
    return tomllib.loads(case.manifest.read_text(encoding="utf-8")), configs[0], configs[1]
