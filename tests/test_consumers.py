"""The consumers of the golden vectors in `docs/examples`: each accepts what is right and finds what is wrong."""

from __future__ import annotations

import ast
import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.running import ROOT, Finished, environment, run

EXAMPLES = ROOT / "docs" / "examples"
VECTORS = ROOT / "fixtures" / "v1"
LINE = re.compile(
    r"(?P<name>\w+/\w+) (?P<id>[0-9a-f]{12}) (?P<clauses>[A-Z]+-\d+(?: [A-Z]+-\d+)*): (?P<description>.+)"
)
JUDGED = {
    "python": {"tree/tree_visibility", "acceptance/verify_greedy"},
    "javascript": {"tree/select_nodes", "acceptance/verify_greedy"},
    "cpp": {"tree/tree_visibility", "acceptance/verify_sampled"},
}
"""Language → what its consumer judges."""
FAULTY = {"python": 2, "javascript": 2, "cpp": 1}
"""Language → of how many of these operations the wrong implementation is wrong."""


def program(name: str, package: str) -> str:
    """The path of a program that the examples need; without it the test fails."""
    found = shutil.which(name)
    assert found, f"{name} is not there, and the examples need it: apt-get install {package}"
    return found


def consumer(language: str, folder: Path) -> list[str]:
    """The command that starts a consumer; what is compiled lands in the folder."""
    if language == "python":
        return [sys.executable, "-I", "-S", str(EXAMPLES / "python" / "consumer.py")]
    if language == "javascript":
        return [program("node", "nodejs"), str(EXAMPLES / "javascript" / "consumer.mjs")]
    binary, source = folder / "consumer", EXAMPLES / "cpp" / "consumer.cpp"
    options = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-O1", "-o", str(binary), str(source)]
    done = run([program("c++", "g++"), *options], folder, environment())
    missing = "nlohmann/json.hpp: No such file" in done.output
    assert not missing, "nlohmann/json.hpp is not there, and the examples need it: apt-get install nlohmann-json3-dev"
    assert done.code == 0, done.output
    return [str(binary)]


def cases(name: str) -> dict[str, dict[str, object]]:
    document = json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))
    return {case["id"]: case for case in document["cases"]}


@pytest.mark.parametrize("language", JUDGED)
def test_a_consumer_tells_right_from_wrong(language: str, tmp_path: Path) -> None:
    command = consumer(language, tmp_path)

    def judged(vectors: Path, which: str) -> Finished:
        return run([*command, str(vectors), which], tmp_path, environment())

    done = judged(VECTORS, "right")
    assert done.code == 0 and done.output.startswith("0 failed"), done.output

    done = judged(VECTORS, "wrong")
    *told, last = done.output.splitlines()
    found = [match for match in map(LINE.fullmatch, told) if match]
    assert done.code == 1 and len(found) == len(told) and last.startswith(f"{len(told)} failed"), done.output
    for match in found:
        case = cases(match["name"])[match["id"]]
        assert (case["clauses"], case["description"]) == (match["clauses"].split(), match["description"])
    names = [match["name"] for match in found]
    assert set(names) <= JUDGED[language] and len(set(names)) == FAULTY[language]
    assert all(names.count(name) >= 2 for name in set(names))

    for name in JUDGED[language]:  # an answer that is altered, and a refusal that is no longer wanted
        altered = tmp_path / "altered"
        shutil.rmtree(altered, ignore_errors=True)
        for one in JUDGED[language]:
            (altered / one).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(VECTORS / f"{one}.json", altered / f"{one}.json")
        document = json.loads((altered / f"{name}.json").read_text(encoding="utf-8"))
        exact = next(case for case in document["cases"] if case["tolerance"]["class"] == "exact")
        refused = next(case for case in document["cases"] if "refused" in case["expected"])
        exact["expected"], refused["expected"] = refused["expected"], exact["expected"]
        (altered / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")
        done = judged(altered, "right")
        assert done.code == 1 and {m["id"] for m in LINE.finditer(done.output)} == {exact["id"], refused["id"]}


def test_the_consumer_in_python_is_small_and_needs_nothing() -> None:
    text = (EXAMPLES / "python" / "consumer.py").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 60
    imported = {a.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import) for a in node.names}
    assert imported <= set(sys.stdlib_module_names) and "ImportFrom" not in ast.dump(ast.parse(text))


def test_the_examples_in_javascript_need_no_packages() -> None:
    for path in EXAMPLES.rglob("*.mjs"):
        wanted = re.findall(r'from "([^"]+)"', path.read_text(encoding="utf-8"))
        assert all(name.startswith(("node:", "./")) for name in wanted), path.name
    assert not list(EXAMPLES.rglob("package.json")) and not list(EXAMPLES.rglob("node_modules"))


def test_the_page_tells_how_they_are_started(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "fixtures.md").read_text(encoding="utf-8")
    for name in ("docs", "fixtures"):
        (tmp_path / name).symlink_to(ROOT / name)
    (commands,) = re.findall(r"^```console consumers\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    lines = [line.removeprefix("$ ") for line in commands.splitlines()]
    assert [line.split()[0] for line in lines] == ["python", "node", "c++"]
    for line in lines:
        line = line.replace("python ", f"{sys.executable} ", 1) if line.startswith("python ") else line
        done = run(["bash", "-c", line], tmp_path, environment())
        assert done.code == 0 and done.output.startswith("0 failed"), f"{line}\n{done.output}"
    (told,) = re.findall(r"^```text consumers\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert told in run([*consumer("python", tmp_path), str(VECTORS), "wrong"], tmp_path, environment()).output
