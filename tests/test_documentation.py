"""What the documents say is true: commands run, links lead somewhere, quoted words are the real ones.

A document is read from top to bottom in one folder of its own. Python blocks are run, and written to the file
that `file=` names. Commands are run where the package is installed; the long ones, which build environments, exist
as targets and are what CI runs.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from conformance import clauses
from conformance.verdicts import Verdict
from tests.running import ROOT, environment, run

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LANGUAGES = {"console", "sh", "python", "text", "json"}
LONG = {"make test": ".ci/run", "make full": "", "make conformance": ".ci/run", "make bench": ""}
"""Commands that start so are not run here, but where the value says; `make full` is all of them at length."""
ELSEWHERE = {
    "python -m pip install .": "tests/test_wheel.py",
    "docs/adapters.md": "tests/test_adapters_page.py",
    "docs/trainers.md": "tests/test_trainers_page.py",
    "docs/trees.md": "tests/test_trees_page.py",
    "docs/serving.md": "tests/test_serving_page.py",
    "docs/drafters.md": "tests/test_drafters_page.py",
    "docs/fixtures.md": "tests/test_consumers.py",
    "docs/gate.md": "tests/test_gate_page.py",
}
"""Commands, and whole pages, that another test runs."""
HOSTS = {"github.com", "huggingface.co", "arxiv.org", "docs.pytest.org", "example.org"}
_FENCE = re.compile(r"^```(?P<language>\w*) ?(?P<more>.*)\n(?P<text>(?:(?!```).*\n)*)```$", re.MULTILINE)
_LINK = re.compile(r"\[[^\]]+\]\((?P<target>[^)]+)\)")


@dataclass(frozen=True)
class Block:
    language: str
    more: str
    text: str

    @property
    def commands(self) -> list[str]:
        lines = self.text.replace("\\\n", " ").splitlines()
        if self.language == "console":
            return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        return [line for line in lines if line.strip() and not line.startswith("#")]


def blocks(document: Path) -> list[Block]:
    return [Block(m["language"], m["more"], m["text"]) for m in _FENCE.finditer(document.read_text(encoding="utf-8"))]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_what_a_document_tells_to_do_works(document: Path, installed_python: Path, tmp_path: Path) -> None:
    if name(document) in ELSEWHERE:
        assert (ROOT / ELSEWHERE[name(document)]).is_file()
        return
    for block in blocks(document):
        assert block.language in LANGUAGES, f"{name(document)}: {block.language!r} is none of {sorted(LANGUAGES)}"
        if block.language == "python":
            if block.more.startswith("file="):
                path = tmp_path / block.more.removeprefix("file=")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text, encoding="utf-8")
            done = run([sys.executable, "-c", block.text], tmp_path, environment())
            assert done.code == 0, done.output
        elif block.language in ("console", "sh"):
            for command in block.commands:
                follow(command, installed_python, tmp_path)


def follow(command: str, python: Path, folder: Path) -> None:
    """Run a command of a document, or see that it is run elsewhere."""
    words = shlex.split(command)
    if words[0] == "make":
        made = subprocess.run(["make", "-n", *words[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stderr
        for start, where in LONG.items():
            if command.startswith(start):
                assert not where or covered(command, ROOT / where), f"{where} has no `{command}`"
                return
        done = run(["make", *words[1:]], ROOT, environment(EAGLE_CONFORMANCE_HOME=str(folder / "home")))
    elif command in ELSEWHERE:
        assert (ROOT / ELSEWHERE[command]).is_file()
        return
    elif words[:3] == ["python", "-m", "tools.environment"]:
        done = run([sys.executable, *words[4:]], ROOT, environment())
        assert words[3] in ("default", "dev")
    elif words[0] == "pytest":
        done = run([str(python), "-m", *words], folder, environment() | {"PYTHONPATH": "."})
    else:
        raise AssertionError(f"no test knows how to run `{command}`")
    assert done.code == 0, f"{command}\n{done.output}"


def covered(command: str, file: Path) -> bool:
    """Whether the file runs the command, be it with more options: `make X IMPL=Y` stands for all its profiles."""
    words = set(shlex.split(re.sub(r" ARGS='.*'", "", command)))
    text = file.read_text(encoding="utf-8")
    steps = re.findall(r"^step (make .+)$", text, re.MULTILINE)
    listed = re.findall(r"^(adapters\.\S+)", text, re.MULTILINE)  # what it runs side by side
    steps += [f"make conformance IMPL={implementation} PROFILE=quick" for implementation in listed]
    lines = [set(shlex.split(step)) for step in steps]
    other_implementation = "IMPL=" not in command
    return any(words <= line and not (other_implementation and any("IMPL" in w for w in line)) for line in lines)


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_links_lead_somewhere(document: Path) -> None:
    for match in _LINK.finditer(document.read_text(encoding="utf-8")):
        target = match["target"].partition("#")[0]
        if host := re.match(r"https://([^/]+)/", target):
            assert host[1] in HOSTS, target
        else:
            assert (document.parent / target).exists(), target


def test_the_documents_of_the_repository_know_no_machine() -> None:
    for path in (*DOCUMENTS, ROOT / "Makefile", ROOT / ".ci" / "run", ROOT / "constraints.txt"):
        found = re.search(r"(?<![\w.~}*/)])/(home|root|tmp|opt|usr/local|work|mnt)/", path.read_text(encoding="utf-8"))
        assert not found, f"{name(path)}: {found and found[0]}"


def test_the_readme_explains_every_word_and_no_other() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    table = text.partition("| word | meaning |\n|---|---|\n")[2].partition("\n\n")[0]
    assert [line.split("|")[1].strip() for line in table.splitlines()] == [word.value for word in Verdict]


def test_quoted_failures_quote_the_specification() -> None:
    quoted = [
        re.match(r"(?P<id>[A-Z]+-\d+) \((?P<group>[^)]+)\): (?P<sentence>.+)", line)
        for document in DOCUMENTS
        for block in blocks(document)
        for line in block.text.splitlines()
    ]
    found = [match for match in quoted if match]
    assert found
    for match in found:
        clause = clauses.clause(match["id"])
        assert (clause.group, clause.sentence) == (match["group"], match["sentence"])


def test_the_readme_has_a_place_for_the_table_of_implementations() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.search(r"<!-- implementations:begin -->\n.*<!-- implementations:end -->", text, re.DOTALL)


def test_ci_runs_every_implementation() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    listed = re.search(r"^IMPLEMENTATIONS = (.+)$", makefile, re.MULTILINE)
    assert listed
    for implementation in listed[1].split():
        option = "" if implementation == "adapters.fast" else f" IMPL={implementation}"
        assert covered(f"make conformance{option}", ROOT / ".ci" / "run")
    # an environment of several, and what needs a clone of the user's
    unreached = {"trainers", "eagle", "eagle_engine", "eagle_engine1", "hass"}
    for file in sorted((ROOT / "adapters" / "requirements").glob("*.txt")):
        judged = {f"adapters.{file.stem}", f"adapters.{file.stem.replace('_', ':')}"} & set(listed[1].split())
        assert judged or file.stem in unreached
