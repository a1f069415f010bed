"""What the checks of manifests run on: recipes of releases, made on the fly, and cases worth keeping by name."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import strategies as st

from conformance.casefile import storable
from conformance.manifest import files as files
from conformance.manifest import hostile, sins_of_addresses, sins_of_vocabulary  # noqa: F401 - they register faults
from conformance.manifest.releases import MAKERS, document, write, write_manifest
from conformance.manifest.sins import SINS
from oracle.errors import BadInput
from oracle.types import ReleaseCase

HOSTILE = hostile.HOSTILE
MEMORY = "/dev/shm"
"""Files that live for a moment stand in memory where the system has a folder for that."""


@storable
@dataclass(frozen=True)
class Recipe:
    """A release of a layout, with one fault by name; the seed draws its sizes and numbers."""

    layout: str
    sin: str
    seed: int

    def drawn(self) -> str:
        words = {**{name: one.change for name, one in SINS.items()}, **{n: one.damage for n, one in HOSTILE.items()}}
        said = (words[self.sin].__doc__ or "").strip() if self.sin in words else ""
        return f"a release in the layout {self.layout}, seed {self.seed}: {self.sin}" + (f" ({said})" if said else "")


@contextmanager
def made(recipe: Recipe) -> Iterator[ReleaseCase]:
    """The release, as files that are gone afterwards."""
    with TemporaryDirectory(prefix="release-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as name:
        yield make(recipe, Path(name))


def make(recipe: Recipe, folder: Path) -> ReleaseCase:
    """The release in a folder: what is wrong goes in before the manifest is written, or after."""
    parts = MAKERS[recipe.layout](recipe.seed)
    one = SINS.get(recipe.sin, SINS["nothing"])
    parts.says = one.says
    parts.shards = 2 if recipe.sin in HOSTILE else parts.shards
    if one.known or not one.says:
        one.change(parts)
    drafter, target = write(parts, folder)
    if parts.says:
        parts.manifest = document(parts, drafter, target)
    if one.says and not one.known:
        one.change(parts)
        write(parts, folder)
    case = ReleaseCase(write_manifest(parts, folder), drafter, target)
    return HOSTILE[recipe.sin].damage(case) or case if recipe.sin in HOSTILE else case


def expected(recipe: Recipe) -> set[str]:
    """The clauses that the release breaks: by construction, the one of its fault."""
    clause = SINS[recipe.sin].clause
    return set() if clause is None else {clause}


GOOD = ("nothing", "no_manifest", "the_targets_tokenizer")
REFILED = ("two_shards", "many_shards", "written_backwards", "another_version", "tokenizer_in_two_files")
"""Changes that break nothing: of a good release, and of how it is filed."""


def of(names: Sequence[str]) -> list[tuple[str, str]]:
    """Layout and fault, of each layout in which it is one."""
    return [(layout, name) for name in names for layout in SINS[name].layouts]


def faults(clause: str) -> list[str]:
    """The faults that break a clause."""
    return [name for name, one in SINS.items() if one.clause == clause]


def first(names: Sequence[str], seed: int = 11) -> list[Recipe]:
    """Every fault once; the layouts take turns."""
    return [Recipe(SINS[name].layouts[i % len(SINS[name].layouts)], name, seed + i) for i, name in enumerate(names)]


def drawn(names: Sequence[str]) -> st.SearchStrategy[Recipe]:
    """Any of the faults, in any of its layouts."""
    return st.builds(
        lambda pair, seed: Recipe(pair[0], pair[1], seed), st.sampled_from(of(names)), st.integers(0, 9_999)
    )


def validate(case: object) -> None:
    """Refuse a case that no implementation answers for. Raises `BadInput`."""
    if isinstance(case, Recipe):
        known = {**dict.fromkeys(HOSTILE, tuple(MAKERS)), **{name: one.layouts for name, one in SINS.items()}}
        if case.sin not in known:
            raise BadInput("sin", (), f"is one of {', '.join(known)}", case.sin)
        if case.layout not in known[case.sin]:
            raise BadInput("layout", (), f"is one of {', '.join(known[case.sin])}", case.layout)


WITNESSES: Mapping[str, Recipe] = {name: Recipe(one.layouts[0], name, 1) for name, one in SINS.items()}
"""Cases that show a known deviation; declarations name them, and the checks of their clauses run them."""
