"""Running parts of a user's clone of somebody else's repository, unchanged, from its own files.

Training scripts act when they are imported: they read a command line, start an accelerator, load a model. So a file is
parsed, and chosen definitions or statements of it are compiled as they stand and run in a namespace that holds what
they refer to. Nothing of a clone is copied, and nothing is downloaded: an environment variable names its folder.
"""

from __future__ import annotations

import ast
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adapters.interface import AdapterError

Namespace = dict[str, Any]


@dataclass(frozen=True)
class Clone:
    """A clone: the variable that names its folder, where it comes from, and a file that shows that it is one."""

    variable: str
    repository: str
    marker: str

    def source(self, name: str) -> Source:
        """A file of the clone. Raises `AdapterError` where there is no such clone."""
        return Source(self.file(name))

    def file(self, name: str) -> Path:
        """Where a file of the clone lies. Raises `AdapterError` where there is no such clone."""
        given = os.environ.get(self.variable)
        wanted = f"{self.variable} names the folder of a git clone of {self.repository}"
        if not given:
            raise AdapterError(f"{wanted}; it is not set")
        root = Path(given).expanduser()
        for needed in (self.marker, name):
            if not (root / needed).is_file():
                raise AdapterError(f"{wanted}; {root} has no file {needed}")
        return root / name

    def revision(self) -> str:
        """The commit of the clone, as far as its folder tells; never raises."""
        try:
            head = Path(os.environ[self.variable]).expanduser() / ".git" / "HEAD"
            text = head.read_text(encoding="utf-8").strip()
            if text.startswith("ref: "):
                text = (head.parent / text[5:]).read_text(encoding="utf-8").strip()
            return text[:12] or "unknown"
        except (KeyError, OSError):
            return "unknown"


class Source:
    """A Python file whose parts can be run on their own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._module = _parsed(path.read_text(encoding="utf-8"), str(path))

    def define(self, namespace: Namespace, *names: str) -> None:
        """Run the module's functions and classes of these names; all of them where none is named."""
        kinds = (ast.FunctionDef, ast.ClassDef)
        found = [node for node in self._module.body if isinstance(node, kinds) and (not names or node.name in names)]
        for name in names:
            if not any(node.name == name for node in found):
                raise self._lacks(f"function or class {name}")
        self._run(found, namespace)

    def assign(self, namespace: Namespace, *names: str) -> None:
        """Run the module's statements that give these names their values, in the order of the file.

        A name that is set under a condition is set by running the whole conditional.
        """
        for name in names:
            if not any(_sets(node, name, nested=True) for node in self._module.body):
                raise self._lacks(f"statement that sets {name}")
        self._run([n for n in self._module.body if any(_sets(n, name, nested=True) for name in names)], namespace)

    def command_line(self, namespace: Namespace) -> None:
        """Run the statements that build `parser` and read `args`; `namespace["argparse"]` decides what is read."""
        uses = [
            node
            for node in self._module.body
            if _sets(node, "parser")
            or _sets(node, "args")
            or (isinstance(node, ast.Expr) and _calls_method_of(node.value, "parser"))
        ]
        if not uses:
            raise self._lacks("command line")
        self._run(uses, namespace)

    def between(self, first: str, last: str, within: str | None = None) -> Callable[[Namespace], None]:
        """The first run of statements in one body from the one that sets `first` to the one that sets `last`.

        `within` names the method to look in; the whole module otherwise. A loop sets its variable.
        """
        for body in self._bodies(within):
            starts = [i for i, node in enumerate(body) if _sets(node, first)]
            if not starts:
                continue
            ends = [i for i, node in enumerate(body) if i >= starts[0] and _sets(node, last)]
            if ends:
                chosen = body[starts[0] : ends[0] + 1]
                return lambda namespace: self._run(chosen, namespace)
        raise self._lacks(f"statements from {first} to {last}")

    def conditional(self, name: str, within: str) -> Callable[[Namespace], None]:
        """The first `if` in the method `within` both branches of which set `name`."""
        for body in self._bodies(within):
            for node in body:
                if isinstance(node, ast.If) and all(
                    any(_sets(inner, name) for inner in branch) for branch in (node.body, node.orelse)
                ):
                    chosen: list[ast.stmt] = [node]
                    return lambda namespace: self._run(chosen, namespace)
        raise self._lacks(f"choice of {name} in {within}")

    def _bodies(self, within: str | None) -> Iterator[list[ast.stmt]]:
        roots: list[ast.AST] = [self._module]
        if within is not None:
            roots = [n for n in ast.walk(self._module) if isinstance(n, ast.FunctionDef) and n.name == within]
        for root in roots:
            for node in ast.walk(root):
                for field in ("body", "orelse"):
                    body = getattr(node, field, None)
                    if isinstance(body, list):
                        yield body

    def _run(self, nodes: Sequence[ast.stmt], namespace: Namespace) -> None:
        # the user's own file, named on purpose: running it is what an adapter is for
        exec(compile(ast.Module(list(nodes), []), str(self._path), "exec"), namespace)

    def _lacks(self, what: str) -> AdapterError:
        return AdapterError(f"{self._path} has no {what}; is it of another revision than this adapter knows?")


@functools.lru_cache(maxsize=16)
def _parsed(text: str, path: str) -> ast.Module:
    return ast.parse(text, path)


def _sets(node: ast.stmt, name: str, nested: bool = False) -> bool:
    """Whether a statement gives `name` a value: by assignment or as a loop's variable, or, nested, inside it."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.For)):
        targets = [node.target]
    names = {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    if name in names:
        return True
    if not nested or not isinstance(node, (ast.If, ast.With)):
        return False
    return any(_sets(inner, name, nested) for inner in [*node.body, *getattr(node, "orelse", [])])


def _calls_method_of(node: ast.expr, name: str) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == name
    )


class Standing:
    """A module as another one sees it, with some of its names replaced; everything else is the module's own."""

    def __init__(self, module: Any, **replaced: Any) -> None:
        self.__dict__.update(replaced)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)
