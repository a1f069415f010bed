"""n-α: acceptance of drafts whose input holds n values that the drafter predicted itself.

EAGLE and EAGLE-3 measure how a drafter stands its own predictions: of the tokens whose input holds n of them, and whose
earlier tokens were all accepted, the share that is accepted. The papers draft chains for it. A drafter that starts each
round from target features has none of its own in the first token's input, and one more at each depth: then n-α is
`by_depth[n]` of `oracle.metrics.summarise_rounds`. They differ for a drafter that keeps rows of earlier rounds instead
of computing them anew (`draft_kv` = kept): such rows are counted by `carried`. In a tree an entry of `by_depth` says
that one of several siblings was accepted, which is another number than a chain's.
"""

from __future__ import annotations

from dataclasses import dataclass

from oracle.errors import BadInput
from oracle.metrics import DEEPEST, numbers, ratio, read
from oracle.types import Ids, RoundsCase


@dataclass(frozen=True)
class Acceptance:
    """By n: how many drafts passed, how many were tested, and their quotient, None where none was."""

    passed: tuple[int, ...]
    tested: tuple[int, ...]

    @property
    def alpha(self) -> tuple[float | None, ...]:
        return tuple(map(ratio, self.passed, self.tested))


def n_alpha(case: RoundsCase, carried: Ids | None = None) -> Acceptance:
    """n-α of chains, as many entries as the largest n of a drafted token says. Raises `BadInput`.

    carried: int [N], how many self-predicted values the first draft of each round has in its input; 0 by default.
    Source: EAGLE §4, EAGLE-3 Figure 7.
    """
    drafted, accepted, _ = read(case)
    before = [0] * len(drafted) if carried is None else numbers(carried, "carried", len(drafted))
    for i, count in enumerate(before):
        if not 0 <= count <= DEEPEST:
            raise BadInput("carried", (i,), f"0 to {DEEPEST} values are carried", count)
    size = max((count + depth for count, depth in zip(before, drafted) if depth), default=0)
    passed, tested = [0] * size, [0] * size
    for count, depth, taken in zip(before, drafted, accepted):
        for d in range(min(depth, taken + 1)):
            tested[count + d] += 1
            passed[count + d] += d < taken
    return Acceptance(tuple(passed), tuple(tested))
