"""The library beside the metrics, by hand and by brute force: calibration, work, experts, what a trainer watches."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from oracle import calibration, experts, observability, work
from oracle.errors import BadInput
from oracle.types import Decision, DraftMapCase

RANDOM = np.random.default_rng(5)

# ---- calibration


def test_buckets_by_hand() -> None:
    """An edge belongs to the bucket above it, 1 to the last one."""
    confidence = np.array([0.0, 0.25, 0.5, 0.75, 1.0, 0.25])
    accepted = np.array([0, 1, 1, 0, 1, 0], dtype=bool)
    found = calibration.calibrate(confidence, accepted, edges=[0, 0.25, 0.5, 0.625, 1])
    assert found.tested == (1, 2, 1, 2)
    assert found.accepted == (0, 1, 1, 1)
    assert found.claimed == (0.0, 0.25, 0.5, 0.875)
    assert found.observed == (0.0, 0.5, 1.0, 0.5)
    assert found.error == pytest.approx((0 + 0.5 + 0.5 + 0.75) / 6, abs=1e-15)


def test_an_empty_bucket_is_undefined() -> None:
    found = calibration.calibrate(np.array([0.95]), np.array([True]))
    assert found.observed == (*[None] * 9, 1.0)
    nothing = calibration.calibrate(np.array([]), np.array([], dtype=bool))
    assert nothing.observed == nothing.claimed == (None,) * 10
    assert nothing.error is None


def test_untested_nodes_are_not_read() -> None:
    tested = np.array([True, False])
    found = calibration.calibrate(np.array([0.5, np.nan]), np.array([True, True]), tested)
    assert sum(found.tested) == sum(found.accepted) == 1


def test_buckets_of_workers_add_up() -> None:
    confidence, accepted = RANDOM.random(200), RANDOM.random(200) < 0.5
    whole = calibration.calibrate(confidence, accepted)
    parts = [calibration.calibrate(confidence[i::3], accepted[i::3]) for i in range(3)]
    assert calibration.add_calibrations(parts) == whole
    for low, high, tested, hits in zip(whole.edges, whole.edges[1:], whole.tested, whole.accepted):
        inside = (confidence >= low) & (confidence < high)
        assert (tested, hits) == (inside.sum(), (inside & accepted).sum())
    exact = sum(map(Fraction, confidence.tolist()))
    assert sum(whole.confidence) == exact


def test_what_a_decision_tested() -> None:
    """Root: 0, 1, 2; below 1: 3, 4. Node 1 is accepted after 0 was refused; 2 is never tested, 3 and 4 are refused."""
    tested, accepted = calibration.outcomes(np.array([-1, -1, -1, 1, 1]), Decision((1,), 7))
    assert tested.tolist() == [True, True, False, True, True]
    assert accepted.tolist() == [False, True, False, False, False]
    tested, _ = calibration.outcomes(np.array([], dtype=np.int64), Decision((), 7))
    assert tested.tolist() == []


# ---- work


def counted(rows: list[tuple[int, int, int, int, int]], **fields: Any) -> work.WorkCase:
    table = np.array(rows, dtype=np.int64).reshape(len(rows), 5)
    return work.WorkCase(*table.T.copy(), **fields)  # type: ignore[arg-type]


ROUNDS = counted([(12, 20, 10, 3, 4), (12, 20, 8, 5, 2), (0, 0, 0, 0, 1)])


def test_work_by_hand() -> None:
    """The second round is cut by a stop behind its second accepted node: six of its eight rows are given back."""
    assert [one.temporary for one in work.work_by_round(ROUNDS)] == [7, 6, 0]
    found = work.count_work(ROUNDS)
    assert found == work.Work(3, 24, 40, 18, 21, 13, 7, 8, 7)
    assert (found.per_accepted("verified"), found.per_emitted("target_rows")) == (18 / 8, 21 / 7)
    assert work.count_work(dataclasses.replace(ROUNDS, root_row=False)).target_rows == 18


def test_work_without_output_has_no_ratio() -> None:
    nothing = work.count_work(counted([]))
    assert nothing == work.Work()
    assert nothing.per_accepted("verified") is nothing.per_emitted("verified") is None
    assert work.count_work(counted([(3, 4, 4, 0, 1)])).per_accepted("verified") is None


def test_work_of_workers_adds_up() -> None:
    one, other = counted([(12, 20, 10, 3, 4)]), counted([(12, 20, 8, 5, 2), (0, 0, 0, 0, 1)])
    assert work.add_work([work.count_work(one), work.count_work(other)]) == work.count_work(ROUNDS)


def test_bytes_of_rows() -> None:
    """A key and a value of 8 heads · 128 in 2 bytes, in 32 layers: 128 KiB a row."""
    assert work.kv_bytes(7, 32, 8, 128, 2) == 7 * 131_072


# ---- experts


def test_experts_by_hand() -> None:
    """Three rows, two layers, two experts a row; the root row and node 0 are kept."""
    routed = np.array([[[0, 1], [1, 2], [5, 0]], [[3, 4], [4, 3], [3, 4]]])
    kept = np.array([True, True, False])
    found = experts.experts_touched(routed, 6, kept)
    assert found == experts.ExpertReads((4, 2), (4, 4))
    assert found.factor == (1.0, 0.5)
    padded = experts.experts_touched(routed, 6, np.array([True, False, False]), np.array([True, True, False]))
    assert padded == experts.ExpertReads((3, 2), (2, 2))
    assert experts.experts_touched(routed, 6, np.zeros(3, dtype=bool)).factor == (None, None)


def test_a_union_by_brute_force() -> None:
    routed = np.array([[RANDOM.permutation(12)[:3] for _ in range(9)] for _ in range(4)])
    kept = RANDOM.random(9) < 0.5
    found = experts.experts_touched(routed, 12, kept)
    for layer in range(4):
        assert found.verification[layer] == len(np.unique(routed[layer]))
        assert found.sequential[layer] == 3 * kept.sum()
    assert experts.add_reads([found, found]).verification == tuple(2 * n for n in found.verification)


# ---- training


def drafted(draft: Any, target: Any, supervise: Any, d2t: Any = None) -> observability.DraftedCase:
    flags = np.array(supervise, dtype=bool)
    return observability.DraftedCase(np.array(draft, dtype=float), np.array(target, dtype=float), flags, d2t)


MAP = DraftMapCase(np.array([1, 3]), None, "absolute")
OFFSETS = DraftMapCase(np.array([1, 2]), None, "offset")
MAPPED = [[[0.0, 2.0], [5.0, 1.0], [np.nan, 0.0]]], [[[0, 1, 2, 9.0], [9, 3, 0, 8.0], [0, 0, 0, 0.0]]], [[1, 1, 0]]


@pytest.mark.parametrize("d2t", [MAP, OFFSETS])
def test_accuracy_with_a_draft_vocabulary(d2t: DraftMapCase) -> None:
    """Row 0: draft 1 is target id 3, a hit. Row 1: the target wants 0, which no draft id stands for: a miss."""
    case = drafted(*MAPPED, d2t)
    assert observability.draft_accuracy(case) == (observability.Share(1, 2),)
    # the two best of row 0 are 3 and 2, of row 1 0 and 3; the draft has 1 and 3
    (recall,) = observability.top_k_recall(case, 2)
    assert recall == observability.Recall(2, 2, 4)
    assert (recall.ratio, recall.bound) == (0.5, 0.5)


def test_ties_impossible_tokens_and_steps_without_rows() -> None:
    none = -np.inf
    case = drafted([[[1, 1, none]], [[0, 0, 0]]], [[[none, 2, 2]], [[0, 0, 0]]], [[1], [0]])
    assert observability.draft_accuracy(case) == (observability.Share(0, 1), observability.Share(0, 0))
    assert observability.draft_accuracy(case)[1].ratio is None
    (first, second) = observability.top_k_recall(case, 9)
    assert first == observability.Recall(1, 2, 2)
    assert second.ratio is second.bound is None


def test_recall_by_brute_force() -> None:
    draft, target = RANDOM.normal(size=(2, 5, 7)), RANDOM.normal(size=(2, 5, 7))
    case = drafted(draft, target, np.ones((2, 5)))
    for k in (1, 3, 7, 8):
        for step, found in enumerate(observability.top_k_recall(case, k)):
            sizes = [
                len({v for v in range(7) if (d > d[v]).sum() < k} & {v for v in range(7) if (t > t[v]).sum() < k})
                for d, t in zip(draft[step], target[step])
            ]
            assert (found.found, found.of) == (sum(sizes), 5 * min(k, 7))


def test_losses_and_features_by_step() -> None:
    flags = np.array([[1, 0], [1, 1], [0, 0]], dtype=bool)
    losses = np.array([[1.0, np.nan], [2.0, 4.0], [np.inf, 0.0]])
    assert observability.loss_by_step(losses, flags) == (1.0, 3.0, None)
    ours, theirs = np.zeros((3, 2, 2)), np.zeros((3, 2, 2))
    ours[0, 0], theirs[1] = [1, 3], [[2, 0], [0, 0]]
    assert observability.feature_error_by_step(ours, theirs, flags) == (5.0, 1.0, None)


def test_states_by_hand() -> None:
    """Row 0 grows from 5 to 10 and stays; row 1 joins at step 1, and leaves again."""
    states = np.array([[[3, 4], [9, 9]], [[6, 8], [0, 2]], [[8, 6], [np.nan, 0]]], dtype=float)
    found = observability.state_track(states, np.array([[1, 0], [1, 1], [1, 0]], dtype=bool))
    assert found.norm == (5.0, 6.0, 10.0)
    assert found.drift == (0.0, 1.0, 1.0)
    assert found.moved == (None, 5.0, pytest.approx(8**0.5))
    nothing = observability.state_track(np.zeros((2, 1, 3)), np.array([[0], [1]], dtype=bool))
    assert nothing == observability.StateTrack((None, 0.0), (None, None), (None, None))


# ---- refusals


YES = np.array([True])
REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "confidence": (
        lambda: calibration.calibrate(np.array([1.5]), YES),
        "confidence[0] = 1.5: a tested node has a confidence in [0, 1]",
    ),
    "no confidence": (lambda: calibration.calibrate(np.array([np.nan]), YES), "confidence[0] = nan: a tested node has"),
    "edges": (lambda: calibration.calibrate(np.array([0.5]), YES, edges=[0, 0.5]), "edges = (0.0, 0.5): begins with 0"),
    "order": (
        lambda: calibration.calibrate(np.array([0.5]), YES, edges=[0, 0.5, 0.5, 1]),
        "edges[2] = 0.5: is larger than the edge before it",
    ),
    "no parts": (lambda: calibration.add_calibrations([]), "parts = 0: there is at least one part"),
    "other edges": (
        lambda: calibration.add_calibrations(
            [calibration.calibrate(np.array([0.5]), YES), calibration.calibrate(np.array([0.5]), YES, edges=[0, 1])]
        ),
        "parts[1].edges = (0.0, 1.0): all parts have the same edges",
    ),
    "path": (
        lambda: calibration.outcomes(np.array([-1, 0]), Decision((1,), 0)),
        "decision.path[0] = 1: an accepted node is a child of the one before it, -1",
    ),
    "verified": (
        lambda: work.count_work(counted([(1, 2, 3, 0, 1)])),
        "verified[0] = 3: a round verifies 0 to all 2 of its nodes",
    ),
    "accepted": (lambda: work.count_work(counted([(1, 3, 2, 3, 1)])), "accepted[0] = 3: a round accepts 0 to all 2 of"),
    "emitted": (
        lambda: work.count_work(counted([(1, 3, 3, 2, 4)])),
        "emitted[0] = 4: a round that accepts 2 drafts emits 1 to 3 tokens",
    ),
    "draft rows": (lambda: work.count_work(counted([(-1, 3, 3, 2, 3)])), "draft_rows[0] = -1: is not negative"),
    "layers": (lambda: work.kv_bytes(3, 0, 1, 1, 1), "layers = 0: is a whole number of at least 1"),
    "expert": (
        lambda: experts.experts_touched(np.array([[[0, 6]]]), 6, YES),
        "routed[0][0][1] = 6: an expert's id lies in [0, 6)",
    ),
    "twice": (
        lambda: experts.experts_touched(np.array([[[2, 2]]]), 6, YES),
        "routed[0][0][1] = 2: a row calls an expert once",
    ),
    "kept padding": (
        lambda: experts.experts_touched(np.array([[[2, 1]]]), 6, YES, ~YES),
        "kept[0] = True: a row of padding is not kept",
    ),
    "no map": (
        lambda: observability.draft_accuracy(drafted(*MAPPED)),
        "draft_logits = 2: without a map a draft has the target's 4 tokens",
    ),
    "map": (
        lambda: observability.draft_accuracy(drafted(*MAPPED, DraftMapCase(np.array([1, 4]), None, "absolute"))),
        "d2t[1] = 4: maps to a target id in [0, 4)",
    ),
    "a logit": (
        lambda: observability.draft_accuracy(drafted(*MAPPED[:2], [[1, 1, 1]], MAP)),
        "draft_logits[0][2][0] = 'nan': a logit of a row that counts",
    ),
    "k": (lambda: observability.top_k_recall(drafted(*MAPPED, MAP), 0), "k = 0: is a whole number of at least 1"),
    "a loss": (
        lambda: observability.loss_by_step(np.array([[np.nan]]), np.array([[True]])),
        "losses[0][0] = 'nan': a number of a row that counts is finite",
    ),
    "a state": (
        lambda: observability.state_track(np.array([[[0, np.inf]]]), np.array([[True]])),
        "states[0][0][1] = 'inf': a number of a row that counts is finite",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_named(name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(BadInput, match="^" + re.escape(message)):
        call()
