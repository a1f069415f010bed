"""What the adapters of the EAGLE-3 trainers SpecForge and AngelSlim share: cases in, traces of a rollout out.

Both trainers roll the draft model out over a right-padded batch whose rows stay where they start: row n is fed the
feature of address n at step 0 and its own state after, while tokens, targets and masks move left by one a step. An
engine runs the real loop on `Sample`s and returns a `Trace` of what passed; the functions here read it. They decide
nothing: which address was read is spelled by what the trainer handed on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from adapters import tracers
from adapters.interface import NotApplicable
from oracle.types import Flags, GatheredRows, Ids, RolloutLossCase, RolloutRows, Rows, TokenBatch

WIDTH = 2
"""Of traced features: one number would do, two show that the trainer keeps them together."""
FOREIGN = -2
"""The address of what was read from another batch row: none in this one, and no filler."""


@dataclass(frozen=True)
class Sample:
    """The tokens of one batch row, as a trainer's data set holds them: arrays over its own length."""

    row: int
    start: int
    tokens: Ids
    features: Rows
    mask: Flags


@dataclass(frozen=True)
class Trace:
    """What passed in a rollout of T steps over B samples, padded to N: arrays [T, B, N] unless said otherwise.

    tokens: ids that were embedded. fed: features or states [T, B, N, d] that the draft model got. target: index of the
    entry of `read` that the target law came from, −1 for a law without a peak, which nothing was read for. read: the
    features that the target's head was given, [B·N, d]. supervised: whether the loss counts the row. position: where
    the attention placed it. visible: [B, N], whether the collator marked the row as one of a sample's.
    """

    tokens: Ids
    fed: Rows
    target: Ids
    read: Rows
    supervised: Flags
    position: Ids
    visible: Flags


def samples(batch: TokenBatch, features: Rows, mask: Flags) -> list[Sample]:
    """One sample for each batch row that holds tokens, in float32; `NotApplicable` for what no sample can say."""
    _fitting(batch, mask)
    found = []
    for b, valid in enumerate(np.asarray(batch.valid)):
        held = np.flatnonzero(valid)
        if not len(held):
            continue
        if held[-1] - held[0] + 1 != len(held):
            raise NotApplicable("a sample has no holes: its tokens are all valid, and padding comes after them")
        if len(set(np.asarray(batch.segment)[b, held].tolist())) > 1:
            raise NotApplicable("a batch row holds one sample: the trainer packs no segments")
        if not np.array_equal(np.asarray(batch.position)[b, held], np.arange(len(held))):
            raise NotApplicable("positions are counted by the trainer: 0, 1, 2, … in every sample")
        within = slice(int(held[0]), int(held[-1]) + 1)
        found.append(
            Sample(
                row=b,
                start=within.start,
                tokens=np.asarray(batch.tokens)[b, within].astype(np.int64),
                features=np.asarray(features)[b, within].astype(np.float32),
                mask=np.asarray(mask)[b, within].astype(bool),
            )
        )
    if not found:
        raise NotApplicable("a batch of samples without any token is never collated")
    return found


def _fitting(batch: TokenBatch, mask: Flags) -> None:
    """`NotApplicable` where no samples can be cut: the trainer never sees arrays that do not fit each other."""
    kinds = {"tokens": "iu", "valid": "b", "segment": "iu", "position": "iu", "supervise": "b"}
    arrays = {name: np.asarray(getattr(batch, name)) for name in kinds}
    for name, array in {**arrays, "mask": np.asarray(mask)}.items():
        if array.ndim != 2 or array.shape != arrays["tokens"].shape:
            raise NotApplicable(f"{name} has the shape {array.shape}, tokens {arrays['tokens'].shape}: all are [B, S]")
        if array.dtype.kind not in kinds.get(name, "b"):
            raise NotApplicable(f"{name} is {array.dtype}, of which no sample is made")


def traced_samples(batch: TokenBatch, mask: Flags) -> list[Sample]:
    """The samples with tokens and features that spell their address."""
    _fitting(batch, mask)
    rows, length = np.shape(batch.valid)
    codes = tracers.codes(rows, length)
    coded = TokenBatch(codes, batch.valid, batch.segment, batch.position, batch.supervise)
    return samples(coded, tracers.features(rows, length, WIDTH), mask)


def longest(given: Sequence[Sample]) -> int:
    """N: what the collator pads to."""
    return max(len(sample.tokens) for sample in given)


def state_code(given: Sequence[Sample], step: int) -> Rows:
    """[B, N]: a number for the state made in each row of a step, above those of all features."""
    count = len(given) * longest(given)
    first = 1 + max(int(sample.features.max(initial=0)) for sample in given)
    return (first + step * count + np.arange(count, dtype=np.float64)).reshape(len(given), longest(given))


def gathered(given: Sequence[Sample], trace: Trace) -> GatheredRows:
    """The rows of step 0 that the collator marks as visible."""
    at = np.argwhere(trace.visible)
    i, n = at[:, 0], at[:, 1]
    chosen = trace.target[0, i, n]
    target = np.where(chosen[:, None] >= 0, trace.read[np.maximum(chosen, 0)], 0.0)
    return GatheredRows(
        batch=np.array([given[k].row for k in i], dtype=np.int64),
        feature=trace.fed[0, i, n].astype(np.float64),
        token=trace.tokens[0, i, n],
        target=target.astype(np.float64),
        supervise=trace.supervised[0, i, n],
        position=trace.position[0, i, n],
    )


def sources(given: Sequence[Sample], trace: Trace, batch: TokenBatch) -> Flags:
    """bool [B, S]: the addresses whose feature a supervised row of step 0 was fed."""
    rows, width = np.shape(batch.valid)
    found = np.zeros((rows, width), dtype=bool)
    for i, n in np.argwhere(trace.visible & trace.supervised[0]):
        b, t = tracers.address(trace.fed[0, i, n, 0], rows, width)
        if t >= 0:
            found[b, t] = True
    return found


def rolled_out(given: Sequence[Sample], trace: Trace, batch: TokenBatch) -> RolloutRows:
    """The nodes of every step, padding included: a node that reads a filler has the address −1 there."""
    rows, length = np.shape(batch.valid)
    at = np.argwhere(trace.visible).tolist()
    states = [state_code(given, s) for s in range(len(trace.fed))]
    made: dict[float, tuple[int, int, int]] = {}
    place: dict[tuple[int, int, int], int] = {}
    anchors: dict[tuple[int, int, int], int] = {}
    columns: dict[str, list[int]] = {name: [] for name in RolloutRows.__dataclass_fields__}
    for s in range(len(trace.fed)):
        for i, n in at:
            node, row = (s, i, n), given[i].row
            fed = float(trace.fed[s, i, n, 0])
            came_from = made.get(fed)
            anchor = anchors[came_from] if came_from else _here(tracers.address(fed, rows, length), row)
            chosen = trace.target[s, i, n]
            target = float(trace.read[chosen, 0]) if chosen >= 0 else 0.0
            entries = {
                "step": s,
                "batch": row,
                "anchor": anchor,
                "consumed": _here(tracers.address(float(trace.tokens[s, i, n]), rows, length), row),
                "target": _here(tracers.address(target, rows, length), row),
                "supervise": int(trace.supervised[s, i, n]),
                "position": int(trace.position[s, i, n]),
                "state_from": place[came_from] if came_from else -1,
            }
            anchors[node], place[node] = anchor, len(columns["step"])
            for name, value in entries.items():
                columns[name].append(value)
        made |= {float(states[s][i, n]): (s, i, n) for i, n in at}
    arrays = {name: np.array(values, dtype=np.int64) for name, values in columns.items()}
    return RolloutRows(**{**arrays, "supervise": arrays["supervise"].astype(bool)})


def peak(law: Rows) -> Ids:
    """[…, V] → […]: the token that a law of one peak points at, −1 where there is none."""
    found: Ids = np.where(np.ptp(law, axis=-1) > 1e-6, np.argmax(law, axis=-1), -1)
    return found


def conventional(case: RolloutLossCase) -> None:
    """`NotApplicable` for a case whose conventions are not those that both trainers fix."""
    fixed = {
        "denominator": "rows",
        "denominator_epsilon": 0.0,
        "restricted_target": "renormalised",
        "gate": "argmax",
        "divergence": "cross_entropy",
        "reduction": "sum",
    }
    for name, value in fixed.items():
        if getattr(case, name) != value:
            raise NotApplicable(f"the trainer's {name} is {value!r}, and the case's {getattr(case, name)!r}")
    if 0 in np.shape(case.draft_logits):
        raise NotApplicable("a rollout without rows is never trained on")


def draft_mask(case: RolloutLossCase) -> Flags:
    """bool [V]: the draft vocabulary as the trainers hold it; `NotApplicable` for maps that it cannot express."""
    vocabulary = np.shape(case.target_logits)[2]
    if case.draft_to_target is None:
        return np.ones(vocabulary, dtype=bool)
    ids = np.asarray(case.draft_to_target)
    if np.any(np.diff(ids) <= 0):
        raise NotApplicable("the draft vocabulary is a mask of the target's, so draft ids ascend with target ids")
    return np.isin(np.arange(vocabulary), ids)


def _here(address: tuple[int, int], row: int) -> int:
    b, t = address
    return t if t == tracers.FILLER or b == row else FOREIGN
