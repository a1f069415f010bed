"""Near ties: which greedy tokens an engine that rounds may choose one way or the other."""

from __future__ import annotations

from adapters.interface import DTYPES
from conformance.check import Check
from conformance.decode.asking import Output, engine
from conformance.verdicts import ClauseViolation


def bound(check: Check) -> float:
    """The margin up to which two runs of one engine may disagree: 4 · γ(n) · scale, as spec.md derives it."""
    served = engine(check)
    strayed = served.roundings * DTYPES[check.arithmetic.dtype]
    return 4 * strayed / (1 - strayed) * served.scale if strayed < 1 else float("inf")


def compare(check: Check, who: str, found: list[int], plain: Output) -> None:
    """`ClauseViolation` at the first token that is not the plain one, unless it is a near tie, which is counted.

    Tokens are compared as far as both go; how far they go others judge.
    """
    for step, (token, right) in enumerate(zip(found, plain.tokens)):
        if token == right:
            continue
        words = f"{who}, token {step}: {token}, and decoded plainly {right}\n{_side_by_side(found, plain, step)}"
        if plain.margins is None:
            raise ClauseViolation(f"{words}\nIt shows no margins, so every difference is one.")
        margin, near = plain.margins[step], bound(check)
        if margin <= near:
            return check.decided(False)
        raise ClauseViolation(f"{words}\nThe plain margin is {margin:.3g}; a near tie is one of at most {near:.3g}.")
    return check.decided(True)


def _side_by_side(found: list[int], plain: Output, step: int) -> str:
    """Both outputs around the place where they part."""
    start = max(0, step - 3)
    rows = [(name, tokens[start : step + 5]) for name, tokens in (("found", found), ("plain", plain.tokens))]
    return "\n".join(f"  {name} from {start}: {' '.join(map(str, tokens))}" for name, tokens in rows)
