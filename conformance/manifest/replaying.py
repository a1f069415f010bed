"""Golden vectors of releases: their files are laid out for the call, and gone after it.

The one relation: "violates", with `clauses`, the clauses that the violations name, each of them and no other;
`fields`, what the oracle calls the fields, as [clause, field], which another implementation may call otherwise; and
`values`, as [clause, [value, value]], the two values that a message about this clause has beside six words or more.
A violation is three texts, and the files are left as they were.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from adapters.interface import Declaration
from conformance.manifest.asking import FIELDS, WORDS_BESIDE
from conformance.manifest.files import contents, laid
from conformance.verdicts import HarnessError


@contextmanager
def prepared(operation: str, arguments: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The arguments of the call: paths of files."""
    with TemporaryDirectory(prefix="release-") as folder:
        yield {"case": laid(arguments["case"], Path(folder))}


def broken(
    relation: Mapping[str, Any],
    operation: str,
    arguments: Mapping[str, Any],
    call: Callable[..., Any],
    declaration: Declaration,
) -> str | None:
    """What is wrong with the violations that are found, in words, or None."""
    if relation["relation"] != "violates" or set(relation) != {"relation", "clauses", "fields", "values"}:
        raise HarnessError(f"{relation['relation']!r} is no relation of {operation}, or has other fields")
    case = arguments["case"]
    folder = case.drafter.parent
    before = contents(folder)
    found = call(operation, case)
    if (after := contents(folder)) != before:
        changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        return f"{operation} changed {', '.join(changed)}"
    try:
        said = [tuple(getattr(one, name) for name in FIELDS) for one in found]
    except (AttributeError, TypeError):
        return f"the answer is a {type(found).__name__}; it is a list of violations with {', '.join(FIELDS)}"
    if not all(isinstance(text, str) and text.strip() for one in said for text in one):
        return f"a violation is three texts; found {said}"
    right, named = set(relation["clauses"]), {clause for clause, _, _ in said}
    if missed := sorted(right - named):
        return f"{', '.join(missed)} is not found; found are {', '.join(sorted(named)) or 'none'}"
    if more := sorted(named - right):
        return f"{', '.join(more)} is found, and nothing breaks it"
    for clause, values in relation["values"]:
        message = next(message for name, _, message in said if name == clause)
        if wrong := _unsaid(message, values):
            return f"{clause}: {wrong}"
    return None


def _unsaid(message: str, values: list[str]) -> str | None:
    """What a message lacks, or None."""
    rest = message
    for value in values:
        if not re.search(rf"(?<![\w.]){re.escape(value)}(?![\w])", message):
            return f"{' meets '.join(values)}, and the message is {message!r}"
        rest = rest.replace(value, "")
    if len(re.findall(r"[^\W\d]{2,}", rest)) < WORDS_BESIDE:
        return f"the message does not say what goes wrong: {message!r}"
    return None
