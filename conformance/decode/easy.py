"""Easy cases of the decode contract, one or two an operation: what the smoke step asks of an adapter."""

from __future__ import annotations

from typing import Any

import numpy as np

from adapters.interface import Declaration
from oracle.types import GenerateCase, LawCase


def easy(operation: str, _: Declaration) -> tuple[list[Any], tuple[str, ...]]:
    """Arguments of `operation`, and the fields of each answer."""
    prompt = np.array([1, 0, 1], dtype=np.int64)
    cases: dict[str, tuple[list[Any], tuple[str, ...]]] = {
        "generate": ([GenerateCase([prompt], 3, 0.0, speculative, 0) for speculative in (True, False)], ("tokens",)),
        "next_law": ([[LawCase(prompt, temperature)] for temperature in (1.0, 0.0)], ()),
    }
    return cases[operation]
