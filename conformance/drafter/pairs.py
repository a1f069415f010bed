"""What one implementation answers on the fixed cases of the pair matrix, written to a file.

    python -m tools.environment SPEC -m conformance.drafter.pairs SPEC trainer|server|both FILE

The cases are the same tiny checkpoints for everyone, and the adapter gives them to its project in the project's own
format. A file holds the logits of each step, and how far rounding in the declared dtype may move them, over the whole
rollout: a step's states are fed back, with all that earlier steps rounded. `conformance.report.pairs` compares files.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from adapters import interface
from conformance.drafter.making import Sizes, make, weight
from conformance.handout import copy
from conformance.roads import drafter as road
from conformance.roads.tape import Rounding
from oracle.types import DrafterCase, Rows

FORMAT = "eagle-conformance/pairs/1"
ROLES = ("trainer", "server", "both")
ACCUMULATOR: Mapping[str, str] = {"bfloat16": "float32", "float16": "float32"}
PLAIN = Sizes(16, 4, 4, 0, 12, 17, 17)
GROUPED = dataclasses.replace(PLAIN, groups=2)
WIDER = dataclasses.replace(GROUPED, width=6)
REDUCED = dataclasses.replace(GROUPED, draft=11)
SERVED = Sizes(64, 2, 1, 0, 24, 17, 17)
"""Heads of 32 entries, the least that attention kernels take. Bounds are wider here than in small sizes."""
REFUSALS = 1000
"""Clauses from here on say nothing of numbers."""
EPSILON, BASE = 1e-5, 10_000.0


def _named(variant: str, seed: int) -> dict[str, DrafterCase]:
    def one(sizes: Sizes, rows: int, rollout: int, first: int = 0, theta: float = BASE, **more: Any) -> DrafterCase:
        where = range(first, first + rows)
        return make(variant, sizes, seed, rows, rollout, EPSILON, theta, positions=where, **more)

    own = {"reduced": mapped(one(REDUCED, 4, 0))}
    if variant == "eagle1":
        own = {"fusion_bias": one(GROUPED, 5, 0, bias=True), "biased_rollout": one(GROUPED, 4, 3, bias=True)}
    return {
        "prefix": one(PLAIN, 5, 0),
        "grouped": one(GROUPED, 5, 0),
        "head_dim": one(WIDER, 4, 0),
        "rope_theta": one(GROUPED, 5, 0, theta=100.0),
        "later": one(GROUPED, 4, 0, first=40),
        **own,
        "rollout": one(PLAIN, 4, 4),
        "grouped_rollout": one(GROUPED, 4, 3),
        "served_rollout": one(SERVED, 4, 2),
    }


def mapped(case: DrafterCase) -> DrafterCase:
    """The case with the map of its smaller vocabulary beside the weights, as EAGLE-3's checkpoints have it."""
    draft, vocabulary = len(weight(case, "lm_head")), len(weight(case, "embed_tokens"))
    targets = np.arange(draft) * vocabulary // draft
    marked = np.zeros(vocabulary)
    marked[targets] = 1
    maps = {"d2t": (targets - np.arange(draft)).astype(np.float64), "t2d": marked}
    return dataclasses.replace(case, weights={**case.weights, **maps})


CASES: Mapping[str, Mapping[str, DrafterCase]] = {"eagle1": _named("eagle1", 71), "eagle3": _named("eagle3", 72)}
"""Variant → name → case: prefixes alone (with fewer key-value heads than heads, heads wider than hidden / heads,
another rotary base, late positions, a bias of the fusion, a smaller draft vocabulary), and rollouts."""


def digest() -> str:
    """Of the cases: files of others are not compared."""
    found = hashlib.sha256()
    for variant, cases in CASES.items():
        for name, case in cases.items():
            found.update(f"{variant} {name} {sorted(case.config.items())}".encode())
            arrays = {**case.weights, **{f.name: getattr(case, f.name) for f in dataclasses.fields(case)[3:]}}
            for key, values in sorted(arrays.items()):
                found.update(f"{key} {values.dtype} {values.shape}".encode())
                found.update(np.ascontiguousarray(values).tobytes())
    return found.hexdigest()


def measured(implementation: interface.Implementation, role: str) -> dict[str, Any]:
    """The file of an implementation. Raises `AdapterError` where it has no `draft_logits`."""
    declaration = implementation.declaration
    if "draft_logits" not in implementation.operations:
        raise interface.AdapterError(f"{implementation.spec}: it provides no draft_logits")
    return {
        "format": FORMAT,
        "spec": implementation.spec,
        "role": role,
        "name": declaration.name,
        "version": declaration.version,
        "dtype": declaration.arithmetic.dtype,
        "deviations": _deviations(declaration),
        "cases": digest(),
        "answers": {
            variant: {name: _answer(implementation, case) for name, case in cases.items()}
            for variant, cases in CASES.items()
        },
    }


def _answer(implementation: interface.Implementation, case: DrafterCase) -> dict[str, Any]:
    """Logits and bounds, [steps, Vd]; or why there are none."""
    try:
        found = implementation.operations["draft_logits"](copy(case))
    except interface.NotApplicable as reason:
        return {"not_applicable": str(reason)}
    logits = np.asarray(found.logits, dtype=np.float64)
    dtype = implementation.declaration.arithmetic.dtype
    units = (interface.DTYPES[name] for name in (dtype, ACCUMULATOR.get(dtype, dtype)))
    bounds = np.array([step.logits_off for step in road.chained(case, Rounding(*units))])
    if logits.shape != bounds.shape:
        raise interface.AdapterError(
            f"{implementation.spec}: logits have shape {logits.shape}; {bounds.shape} is asked for"
        )
    if not np.isfinite(logits).all():
        raise interface.AdapterError(f"{implementation.spec}: a logit is no finite number")
    digits = 17 if dtype == "float64" else 9  # which hold a number of the dtype
    return {"logits": _rows(logits, digits), "bounds": _rows(bounds, 3)}


def _rows(values: Rows, digits: int) -> list[list[float]]:
    return [[float(f"{value:.{digits}g}") for value in row] for row in values]


def _deviations(declaration: interface.Declaration) -> list[dict[str, str]]:
    """What the implementation is known to do otherwise in its numeric step, each reason once."""
    found: dict[str, list[str]] = {}
    links = {}
    for deviation in declaration.deviations:
        contract, _, number = deviation.clause.partition("-")
        if contract == "DRAFTER" and int(number) < REFUSALS:
            found.setdefault(deviation.reason, []).append(number)
            links[deviation.reason] = deviation.link
    return [{"clauses": f"DRAFTER-{', '.join(ids)}", "reason": why, "link": links[why]} for why, ids in found.items()]


def written(document: Mapping[str, Any]) -> str:
    """As JSON, an answer a line; the same content gives the same text."""

    def line(value: object) -> str:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))

    parts = [f"{line(key)}:{line(value)}" for key, value in document.items() if key != "answers"]
    answers = []
    for variant, cases in document["answers"].items():
        rows = ",\n".join(f"{line(name)}:{line(answer)}" for name, answer in cases.items())
        answers.append(f"{line(variant)}:{{\n{rows}}}")
    return "{" + ",\n".join([*parts, '"answers":{' + ",\n".join(answers)]) + "}}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spec")
    parser.add_argument("role", choices=ROLES)
    parser.add_argument("file", type=Path)
    chosen = parser.parse_args()
    document = measured(interface.load(chosen.spec), chosen.role)
    chosen.file.parent.mkdir(parents=True, exist_ok=True)
    chosen.file.write_text(written(document), encoding="utf-8")


if __name__ == "__main__":
    main()
