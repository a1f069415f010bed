"""The specification is well-formed, and every clause is checked or says why not."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from conformance import clauses

ROOT = Path(__file__).resolve().parents[1]
CONTRACTS = clauses.contracts()


def marked(contract: str) -> dict[str, list[str]]:
    """Clause id → the checks that name it, read from the source."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "conformance" / contract).glob("test_*.py")):
        for identity in re.findall(r'"([A-Z]+-\d+)"', path.read_text(encoding="utf-8")):
            found.setdefault(identity, []).append(path.name)
    return found


def checks(contract: str) -> dict[str, str]:
    """Check → its decorators, the lists of parameters that they name written out."""
    found = {}
    for path in sorted((ROOT / "conformance" / contract).glob("test_*.py")):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        lists = {ast.unparse(node.targets[0]): ast.unparse(node) for node in body if isinstance(node, ast.Assign)}
        for node in body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                decorators = " ".join(map(ast.unparse, node.decorator_list))
                named = [text for name, text in lists.items() if re.search(rf"\b{name}\b", decorators)]
                found[node.name] = " ".join([decorators, *named])
    return found


@pytest.mark.parametrize("contract", CONTRACTS)
def test_every_clause_has_a_check_or_a_reason(contract: str) -> None:
    named = marked(contract)
    for identity, clause in clauses.clauses(contract).items():
        assert bool(clause.excluded) != (identity in named), identity
    assert set(named) <= set(clauses.clauses(contract)), "a check names a clause that the specification lacks"


@pytest.mark.parametrize("contract", CONTRACTS)
def test_every_check_names_its_clauses(contract: str) -> None:
    for check, decorators in checks(contract).items():
        assert "mark.clauses" in decorators, check


@pytest.mark.parametrize("contract", CONTRACTS)
def test_sentences_are_facts(contract: str) -> None:
    """One sentence in the present tense: no modals, no question, and none said twice."""
    sentences = [clause.sentence for clause in clauses.clauses(contract).values()]
    assert len(set(sentences)) == len(sentences)
    for sentence in sentences:
        assert sentence.endswith(".") and not re.search(r"\b(should|shall|must|may|might|could|will)\b", sentence), (
            sentence
        )
        assert not re.search(r"[a-z]\. [A-Z]", sentence), f"more than one sentence: {sentence}"
        assert len(sentence) <= 180, sentence


@pytest.mark.parametrize("contract", CONTRACTS)
def test_consequences_are_never_lower(contract: str) -> None:
    """A fault belongs to the lowest clause it refutes, so a clause implies only clauses above it."""
    found = clauses.clauses(contract)
    order = list(found)
    assert order == sorted(order, key=lambda i: int(i.partition("-")[2])), "numbers climb the ladder"
    for identity, clause in found.items():
        lower = [i for i in clause.implies if order.index(i) < order.index(identity)]
        assert not lower, f"{identity} implies {lower}"


def test_a_broken_specification_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "broken"
    folder.mkdir()
    monkeypatch.setattr(clauses, "HERE", tmp_path)
    for text, words in (
        ("### BROKEN-1\nA rule.\n- source: x\n", "stands in a group"),
        ("## g\n### BROKEN-1\nA rule.\n- source: x\n### BROKEN-1\nA rule.\n- source: x\n", "defined twice"),
        ("## g\n### BROKEN-1\nA rule.\n", "a sentence and a source"),
        ("## g\n### BROKEN-1\nA rule.\n- source: x\n- implies: nothing\n", "neither a clause nor a group"),
    ):
        (folder / "spec.md").write_text(text, encoding="utf-8")
        clauses.clauses.cache_clear()
        with pytest.raises(clauses.SpecError, match=words):
            clauses.clauses("broken")
    clauses.clauses.cache_clear()
