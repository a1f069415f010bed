"""The work of a round: what the drafter and the target computed for it, and the rows that were kept only meanwhile.

A verification writes a KV row for each of its rows. Publication keeps the root row and the accepted nodes that the stop
cut leaves; the others are given back. Rows are what is counted: `kv_bytes` says how large they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oracle.errors import BadInput
from oracle.metrics import numbers, outcome, ratio
from oracle.tensors import listed, member, whole
from oracle.types import Ids


@dataclass(frozen=True, eq=False)
class WorkCase:
    """Rounds, one entry each; int64 [N].

    draft_rows: rows that went through the drafter. grown: nodes that the drafter's tree had. verified: nodes that went
    through the target. accepted: drafts accepted. emitted: tokens that came out, after the stop cut. root_row: whether
    the root is a row of the verification, too (`root_in_verification`).
    """

    draft_rows: Ids
    grown: Ids
    verified: Ids
    accepted: Ids
    emitted: Ids
    root_row: bool = True


@dataclass(frozen=True)
class Work:
    """Sums over rounds. target_rows: verified nodes and root rows. temporary: rows that were verified and given back.

    peak: the most rows given back in one round.
    """

    rounds: int = 0
    draft_rows: int = 0
    grown: int = 0
    verified: int = 0
    target_rows: int = 0
    temporary: int = 0
    peak: int = 0
    accepted: int = 0
    emitted: int = 0

    def per_accepted(self, name: str) -> float | None:
        """One of the sums by accepted drafts; None where none was accepted."""
        return ratio(getattr(self, name), self.accepted)

    def per_emitted(self, name: str) -> float | None:
        """One of the sums by emitted tokens; None where none came out."""
        return ratio(getattr(self, name), self.emitted)


def work_by_round(case: WorkCase) -> list[Work]:
    """The work of each round. Raises `BadInput`."""
    member(case, WorkCase)
    rows = numbers(case.draft_rows, "draft_rows", "N")
    grown, verified, accepted, emitted = (
        numbers(getattr(case, name), name, len(rows)) for name in ("grown", "verified", "accepted", "emitted")
    )
    if not isinstance(case.root_row, bool):
        raise BadInput("root_row", (), "is a boolean", case.root_row)
    found = []
    for i, (ran, nodes, sent, taken, out) in enumerate(zip(rows, grown, verified, accepted, emitted)):
        if ran < 0:
            raise BadInput("draft_rows", (i,), "is not negative", ran)
        if nodes < 0:
            raise BadInput("grown", (i,), "is not negative", nodes)
        if not 0 <= sent <= nodes:
            raise BadInput("verified", (i,), f"a round verifies 0 to all {nodes} of its nodes", sent)
        if not 0 <= taken <= sent:
            raise BadInput("accepted", (i,), f"a round accepts 0 to all {sent} of its verified nodes", taken)
        outcome(taken, out, "emitted", (i,))
        # a stop inside the path leaves `out` of its nodes, and no frontier
        given_back = sent - min(taken, out)
        found.append(Work(1, ran, nodes, sent, sent + case.root_row, given_back, given_back, taken, out))
    return found


def count_work(case: WorkCase) -> Work:
    """The work of all rounds. Raises `BadInput`."""
    return add_work(work_by_round(case))


def add_work(parts: Sequence[Work]) -> Work:
    """The work of several rounds or workers: sums, and the largest peak. Raises `BadInput`."""
    listed(parts, "parts", Work)
    names = ("rounds", "draft_rows", "grown", "verified", "target_rows", "temporary", "accepted", "emitted")
    sums = {name: sum(getattr(part, name) for part in parts) for name in names}
    return Work(**sums, peak=max((part.peak for part in parts), default=0))


def kv_bytes(rows: int, layers: int, kv_heads: int, head_dim: int, itemsize: int) -> int:
    """How large so many KV rows are: a key and a value for each layer and head. Raises `BadInput`."""
    sizes = {"layers": layers, "kv_heads": kv_heads, "head_dim": head_dim, "itemsize": itemsize}
    found = 2 * whole(rows, "rows", 0)
    for name, size in sizes.items():
        found *= whole(size, name, 1)
    return found
