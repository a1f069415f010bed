"""A drafter's case drawn for a person: its sizes, its weights, what each row consumes."""

from __future__ import annotations

import numpy as np

from conformance.draw import drawer, number, row
from oracle.types import DrafterCase

_MOST = 6


@drawer(DrafterCase)
def drafter(case: DrafterCase) -> str:
    settings = ", ".join(f"{name} {value}" for name, value in case.config.items())
    lines = [f"{case.variant}; {settings}"]
    features, tokens, positions = (np.asarray(v) for v in (case.features, case.tokens, case.positions))
    for r, token in enumerate(tokens.tolist()[:_MOST]):
        feature = row(np.ravel(features[r])) if features.ndim == 2 and r < len(features) else "no feature"
        position = int(positions[r]) if r < len(positions) else "?"
        lines.append(f"  row {r} at {position}: token {token} {_embedding(case, token)}  feature {feature}")
    if len(tokens) > _MOST:
        lines.append(f"  … {len(tokens) - _MOST} more rows, the last at {int(positions[-1])} …")
    rollout = np.asarray(case.rollout_tokens).tolist()
    lines += [f"  then token {token} {_embedding(case, token)}, with the state fed back" for token in rollout[:_MOST]]
    for name, values in case.weights.items():
        shape = " × ".join(map(str, np.shape(values)))
        if np.ndim(values) == 1:
            lines.append(f"  {name} [{shape}] {row(values)}")
        else:
            what = "zeros" if not np.any(values) else f"begins with {row(np.ravel(values)[:4])}"
            lines.append(f"  {name} [{shape}] {what}")
    return "\n".join(lines)


def _embedding(case: DrafterCase, token: int) -> str:
    table = np.asarray(case.weights.get("embed_tokens.weight", ()))
    if table.ndim != 2 or not 0 <= token < len(table):
        return "(not in the table)"
    return "(" + ", ".join(number(v) for v in table[token][:2].tolist()) + ", …)"
