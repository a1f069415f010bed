"""Arrows point one way, and the second road shares no code with the first."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MODULES = [p for folder in ("oracle", "adapters", "conformance") for p in sorted((ROOT / folder).rglob("*.py"))]
FORBIDDEN = {
    "oracle": {"adapters", "conformance", "bench", "tests", "torch", "hypothesis"},
    "adapters": {"conformance", "bench", "tests"},
    "conformance": {"bench", "tests"},
}


def imported(path: Path, top_level: bool = False) -> set[str]:
    """Dotted names that a module imports, anywhere in it or only when it is itself imported."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = tree.body if top_level else list(ast.walk(tree))
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_from_conformance_to_adapters_to_oracle(path: Path) -> None:
    wrong = FORBIDDEN[path.relative_to(ROOT).parts[0]]
    if path.is_relative_to(ROOT / "oracle" / "fast"):
        wrong = wrong - {"torch"}
    assert not {name for name in imported(path) if name.partition(".")[0] in wrong}


@pytest.mark.parametrize("path", sorted((ROOT / "conformance" / "roads").glob("*.py")), ids=lambda p: p.name)
def test_roads_import_only_the_types_of_the_oracle(path: Path) -> None:
    for name in imported(path):
        if name.startswith("oracle"):
            assert name.startswith("oracle.types"), name
        if not name.startswith("conformance.roads.tape"):  # arithmetic that knows no contract
            assert not name.startswith(("adapters", "conformance")), name


@pytest.mark.parametrize("path", sorted((ROOT / "conformance" / "roads").glob("*.py")), ids=lambda p: p.name)
def test_roads_compute_by_what_the_project_depends_on(path: Path) -> None:
    """Roads in many digits may use mpmath, and import it late: environments of implementations have none."""

    def others(names: set[str]) -> set[str]:
        found = {name.partition(".")[0] for name in names}
        return found - set(sys.stdlib_module_names) - {"numpy", "networkx", "oracle", "conformance"}

    assert others(imported(path)) <= ({"mpmath"} if path.name.startswith("digits_") else set())
    assert not others(imported(path, top_level=True))


def test_fast_paths_share_nothing_with_the_oracle_but_words_and_errors() -> None:
    for path in (ROOT / "oracle" / "fast").glob("*.py"):
        own = {name for name in imported(path) if name.startswith("oracle")}
        assert all(name.startswith(("oracle.fast", "oracle.words", "oracle.errors")) for name in own), path.name


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_modules_stay_readable(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), "a module says what it is for"


def test_the_plugin_imports_nothing_heavy() -> None:
    """It loads in every pytest of its environment."""
    names = imported(ROOT / "conformance" / "plugin.py", top_level=True)
    assert {name.partition(".")[0] for name in names} <= {
        *("__future__", "argparse", "collections", "os", "pathlib", "pytest", "sys")
    }


@pytest.mark.parametrize("path", sorted((ROOT / "adapters").glob("*.py")), ids=lambda p: p.name)
def test_adapters_import_their_implementation_late(path: Path) -> None:
    heavy = {"torch", "vllm", "triton"} | {"transformers"}
    assert not {name for name in imported(path, top_level=True) if name.partition(".")[0] in heavy}


def test_public_functions_have_docstrings() -> None:
    for path in [*sorted((ROOT / "oracle").glob("*.py"))]:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
                assert ast.get_docstring(node), f"{path.name}: {node.name}"
