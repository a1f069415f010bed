"""A verdict of the gate for whoever reads it: lines, JSON, and JUnit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from conformance.gate.verdict import NOT_JUDGED, WORDS, Verdict
from conformance.report import atomic


def lines(document: dict[str, Any]) -> Iterator[str]:
    """What stands in a terminal, one thing a line; of a verdict's document, so that a stored one is shown alike."""
    yield f"drafter  {document['drafter']}"
    yield f"target   {document['target']}"
    yield f"manifest {document['manifest'] or 'none, inferred from the layout'}"
    if document["impl"]:
        yield f"server   {document['served_by'] or 'could not be asked'} (--impl={document['impl']})"
    for part in document["parts"]:
        yield f"{part['name']}: {part['word']}: {part['reason']}"
        for one in part["findings"]:
            yield f"  {' '.join(filter(None, [one['clause'], one['field']]))} {one['message']}"
    for one in document["conventions"]:
        agree = {True: "agree", False: "DISAGREE", None: "said on one side"}[one["agree"]]
        yield f"convention {one['name']}: trainer {one['trainer'] or '–'}, server {one['server'] or '–'}: {agree}"
    yield conclusion(document)


def conclusion(document: dict[str, Any]) -> str:
    """The last line."""
    word = "could not judge" if document["word"] == NOT_JUDGED else document["word"]
    return f"{word}: {counted(document)} → exit {document['exit_code']}"


def counted(document: dict[str, Any]) -> str:
    """How many parts got each word."""
    return ", ".join(f"{sum(part['word'] == word for part in document['parts'])} {word}" for word in WORDS)


def write_json(verdict: Verdict, path: Path) -> None:
    """The document as JSON. Raises `OSError`."""
    text = json.dumps(verdict.document(), ensure_ascii=False, indent=1, allow_nan=False)
    atomic.write_text(path, text + "\n")


def write_junit(verdict: Verdict, path: Path) -> None:
    """A test case a part: a failure a finding, an error where a part that was wanted could not be judged.

    Raises `OSError`.
    """
    import junitparser

    document = verdict.document()
    suite = junitparser.TestSuite("eagle-conformance gate")
    for name in ("drafter", "target"):
        suite.add_property(name, document[name])
    for part in document["parts"]:
        case = junitparser.TestCase(part["name"], classname="eagle-conformance.gate")
        results: list[Any] = [
            junitparser.Failure(f"{one['field']} {one['message']}", one["clause"] or part["name"])
            for one in part["findings"]
        ]
        if part["word"] == NOT_JUDGED:
            kind = junitparser.Error if part["wanted"] else junitparser.Skipped
            results.append(kind(part["reason"], NOT_JUDGED))
        case.result = results
        case.system_out = part["reason"]
        suite.add_testcase(case)
    xml = junitparser.JUnitXml()
    xml.add_testsuite(suite)
    xml.update_statistics()  # type: ignore[no-untyped-call]
    atomic.write_bytes(path, xml.tostring())  # type: ignore[no-untyped-call]
