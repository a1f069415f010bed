"""What a trainer watches of its drafter, rollout step by rollout step.

Every number is over supervised rows alone, from sums; a step without one is None. What an unsupervised row holds is not
read. Token ids are the target's: a draft vocabulary is mapped first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from oracle.errors import BadInput
from oracle.metrics import ratio
from oracle.tensors import member, tensor, whole
from oracle.types import DraftMapCase, Flags, Ids, Rows
from oracle.vocabulary import distinct, draft_to_target


@dataclass(frozen=True, eq=False)
class DraftedCase:
    """draft_logits [T, R, Vd], target_logits [T, R, V], supervise [T, R]; d2t where the draft has its own vocabulary.

    Without a map draft ids are target ids, and Vd = V.
    """

    draft_logits: Rows
    target_logits: Rows
    supervise: Flags
    d2t: DraftMapCase | None = None


@dataclass(frozen=True)
class Share:
    """hits of so many; ratio None where there were none."""

    hits: int
    of: int

    @property
    def ratio(self) -> float | None:
        return ratio(self.hits, self.of)


@dataclass(frozen=True)
class Recall:
    """found of so many wanted tokens; reachable: those that the draft vocabulary has at all."""

    found: int
    reachable: int
    of: int

    @property
    def ratio(self) -> float | None:
        return ratio(self.found, self.of)

    @property
    def bound(self) -> float | None:
        """The best recall that this draft vocabulary allows."""
        return ratio(self.reachable, self.of)


def draft_accuracy(case: DraftedCase) -> tuple[Share, ...]:
    """By step: rows whose most probable draft token is the target's over its full vocabulary. Raises `BadInput`.

    Lower ids first on ties. A row whose target token the draft vocabulary lacks is a miss, not left out.
    """
    return tuple(Share(r.found, r.of) for r in top_k_recall(case, 1))


def top_k_recall(case: DraftedCase, k: int) -> tuple[Recall, ...]:
    """By step: how many of the target's k most probable tokens are among the draft's k most probable.

    Lower ids first on ties, in each vocabulary by its own ids. Impossible tokens (−inf) are among neither, so a row may
    want fewer than k. Raises `BadInput`.
    """
    member(case, DraftedCase)
    draft = tensor(case.draft_logits, "draft_logits", "f", ("T", "R", "Vd"))
    target = tensor(case.target_logits, "target_logits", "f", (*draft.shape[:2], "V"))
    counted = tensor(case.supervise, "supervise", "b", draft.shape[:2])
    ids = _map(case.d2t, draft.shape[2], target.shape[2])
    known, size = set(ids.tolist()), whole(k, "k", 1)
    found = []
    for step, rows in enumerate(counted):
        hits = reachable = wanted = 0
        for r in np.flatnonzero(rows).tolist():
            best = _best(target[step, r], size, "target_logits", (step, r))
            drafted = {int(ids[i]) for i in _best(draft[step, r], size, "draft_logits", (step, r))}
            hits += len(drafted.intersection(best))
            reachable += len(known.intersection(best))
            wanted += len(best)
        found.append(Recall(hits, reachable, wanted))
    return tuple(found)


def loss_by_step(losses: Rows, supervise: Flags) -> tuple[float | None, ...]:
    """By step: the mean loss; losses and supervise [T, R]. Raises `BadInput`."""
    values = tensor(losses, "losses", "f", ("T", "R"))
    counted = tensor(supervise, "supervise", "b", values.shape)
    return tuple(
        _mean([_number(values[step, r], "losses", (step, r)) for r in np.flatnonzero(rows).tolist()])
        for step, rows in enumerate(counted)
    )


def feature_error_by_step(predicted: Rows, target: Rows, supervise: Flags) -> tuple[float | None, ...]:
    """By step: the mean of (predicted − target)² over rows and features; both [T, R, d]. Raises `BadInput`."""
    ours = tensor(predicted, "predicted", "f", ("T", "R", "d"))
    theirs = tensor(target, "target", "f", ours.shape)
    counted = tensor(supervise, "supervise", "b", ours.shape[:2])
    found = []
    for step, rows in enumerate(counted):
        squares: list[float] = []
        for r in np.flatnonzero(rows).tolist():
            pair = (_vector(ours, "predicted", (step, r)), _vector(theirs, "target", (step, r)))
            squares += [(a - b) * (a - b) for a, b in zip(*pair)]
        found.append(_mean(squares))
    return tuple(found)


@dataclass(frozen=True)
class StateTrack:
    """By step, of the state that the drafter is fed.

    norm: the mean length of a state. drift: how much longer the states are than those of step 0, as a part of these,
    over rows that both steps count. moved: the mean distance from the state of the step before, over rows that both
    count.
    """

    norm: tuple[float | None, ...]
    drift: tuple[float | None, ...]
    moved: tuple[float | None, ...]


def state_track(states: Rows, supervise: Flags) -> StateTrack:
    """Norm and drift of draft states [T, R, d], the same row in the same place at every step. Raises `BadInput`.

    A drift is the quotient of sums, less one; None where step 0 has nothing to compare with, or only zeros.
    """
    held = tensor(states, "states", "f", ("T", "R", "d"))
    counted = tensor(supervise, "supervise", "b", held.shape[:2])
    rows = [
        {r: _vector(held, "states", (step, r)) for r in np.flatnonzero(flags).tolist()}
        for step, flags in enumerate(counted)
    ]
    lengths = [{r: math.hypot(*state) for r, state in step.items()} for step in rows]
    drift, moved = [], []
    for step, states_here in enumerate(rows):
        both = [r for r in states_here if r in rows[0]]
        start = math.fsum(lengths[0][r] for r in both)
        drift.append(math.fsum(lengths[step][r] for r in both) / start - 1 if start else None)
        before = rows[step - 1] if step else {}
        moved.append(_mean([math.dist(state, before[r]) for r, state in states_here.items() if r in before]))
    return StateTrack(tuple(_mean(list(step.values())) for step in lengths), tuple(drift), tuple(moved))


# ---- reading


def _map(case: DraftMapCase | None, drafted: int, vocabulary: int) -> Ids:
    """The target id of each draft id."""
    if case is None:
        if drafted != vocabulary:
            raise BadInput("draft_logits", (), f"without a map a draft has the target's {vocabulary} tokens", drafted)
        return np.arange(vocabulary)
    ids = draft_to_target(case)
    if len(ids) != drafted:
        raise BadInput("d2t", (), f"maps each of {drafted} draft tokens", len(ids))
    return distinct(ids.tolist(), "d2t", vocabulary)


def _best(row: np.ndarray, k: int, field: str, index: tuple[int, ...]) -> list[int]:
    """The ids of the k largest logits, lower ids first on ties."""
    for v, logit in enumerate(row.tolist()):
        if math.isnan(logit) or logit == math.inf:
            raise BadInput(field, (*index, v), "a logit of a row that counts is a number, or −inf", str(logit))
    if not np.isfinite(row).any():
        raise BadInput(field, index, "a row that counts has a finite logit")
    return [v for v in np.argsort(-row, kind="stable")[:k].tolist() if row[v] > -math.inf]


def _vector(values: np.ndarray, field: str, index: tuple[int, int]) -> list[float]:
    return [_number(value, field, (*index, i)) for i, value in enumerate(values[index])]


def _number(value: object, field: str, index: tuple[int, ...]) -> float:
    number = float(value)  # type: ignore[arg-type]
    if not math.isfinite(number):
        raise BadInput(field, index, "a number of a row that counts is finite", str(number))
    return number


def _mean(values: list[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
