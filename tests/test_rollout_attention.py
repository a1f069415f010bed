"""What the trainers' visibility shares: behind a right attention it shows the oracle's graph, in every layout."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest

from adapters import rollout_attention as shared
from adapters.interface import NotApplicable
from oracle import visibility as oracle
from oracle.types import AttentionCase, RolloutCase, RolloutMaskCase, Rows

LEAK = 1e4
"""More than any mean of the values below."""


def case(*documents: tuple[int, int], length: int, steps: int) -> RolloutCase:
    """Documents at addresses start … stop − 1, each of a segment and positions of its own."""
    segment, position = np.zeros(length, dtype=np.int64), np.zeros(length, dtype=np.int64)
    valid = np.zeros(length, dtype=bool)
    for i, (start, stop) in enumerate(documents):
        valid[start:stop], segment[start:stop], position[start:stop] = True, 5 - i, np.arange(stop - start)
    return RolloutCase(length, steps, segment, valid, position)


def trainer(packs: bool = False, cut: int = 0, absolute: bool = False, leaks: bool = False) -> shared.Trainer:
    """One that is right: step s at anchor a gives equal weight to step 0 up to a and to its own anchor after it."""

    def attend(given: Sequence[shared.Document], steps: int, value: Rows) -> shared.Seen:
        output, position = np.zeros_like(value), np.zeros(value.shape[:3], dtype=np.int64)
        kept = np.zeros(value.shape[:3], dtype=bool)
        for document in given:
            for s in range(steps):
                for n, a in document.anchored(s, absolute):
                    first = document.start
                    if a < first:
                        continue
                    own = [(0, b) for b in range(first, a + 1)] + [(t, a) for t in range(1, s + 1)]
                    if leaks:
                        own.append((0, document.start + document.count - 1))
                    rows = [value[t, document.batch, document.row + b - first + t * absolute] for t, b in own]
                    output[s, document.batch, n] = np.mean(rows, axis=0)
                    position[s, document.batch, n] = document.position[0] + a - first + s
                    kept[s, document.batch, n] = True
        return shared.Seen(output, position, kept)

    def length(given: Sequence[shared.Document], steps: int) -> int:
        return sum(d.count for d in given) + 3 if packs else shared.longest(given, steps) + 3

    return shared.Trainer(attend, length, packs, cut, absolute)


LAYOUTS = [
    pytest.param(trainer(), id="padded"),
    pytest.param(trainer(absolute=True), id="absolute"),
    pytest.param(trainer(packs=True, cut=1), id="packed"),
]
WHOLE = [case((0, 6), length=6, steps=3), case((2, 6), length=8, steps=4), case((1, 2), length=3, steps=2)]
PACKS = [case((0, 4), (5, 6), (6, 11), length=12, steps=3)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_graph_is_the_oracles(layout: shared.Trainer) -> None:
    for one in [*WHOLE, *(PACKS if layout.packs else [])]:
        found, right = shared.visibility(layout, one), oracle.rollout_visibility(one)
        nodes = list(zip(found.step.tolist(), found.anchor.tolist()))
        assert nodes == sorted(set(nodes))
        wanted = [nodes.index(node) for node in zip(right.step.tolist(), right.anchor.tolist())]
        assert found.visible[np.ix_(wanted, wanted)].tolist() == right.visible.tolist()
        assert found.position[wanted].tolist() == right.position.tolist()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_ragged_cases_share_a_batch_and_no_value(layout: shared.Trainer) -> None:
    rng = np.random.default_rng(0)
    cases = [*WHOLE, dataclasses.replace(WHOLE[1], steps=3), *(PACKS if layout.packs else [])]
    asked = [AttentionCase(c, rng.normal(size=(c.steps, c.length, 2 + i))) for i, c in enumerate(cases)]
    for one, found in zip(asked, shared.attention(layout, asked)):
        (right,) = oracle.rollout_attention([one])
        nodes = list(zip(found.step.tolist(), found.anchor.tolist()))
        wanted = [nodes.index(node) for node in zip(right.step.tolist(), right.anchor.tolist())]
        assert found.output[wanted] == pytest.approx(right.output)


def test_a_row_without_a_node_shows_where_it_is_seen() -> None:
    one = AttentionCase(WHOLE[0], np.ones((3, 6, 1)))
    (found,) = shared.attention(trainer(leaks=True), [one])
    assert (np.abs(found.output) > LEAK).all()


def test_what_no_sample_says_is_not_applicable() -> None:
    hole = dataclasses.replace(WHOLE[0], valid=np.array([1, 1, 0, 1, 1, 1], dtype=bool))
    for wrong in (PACKS[0], hole, dataclasses.replace(WHOLE[0], steps=0), case(length=4, steps=2)):
        with pytest.raises(NotApplicable):
            shared.visibility(trainer(), wrong)
    with pytest.raises(NotApplicable, match="not those of the rows"):
        shared.attention(trainer(), [AttentionCase(WHOLE[0], np.ones((2, 6, 1)))])


def test_masks_go_to_the_addresses_of_their_documents() -> None:
    (one,) = PACKS
    given = shared.documents(trainer(packs=True, cut=1), [one])
    rows = sum(document.count for document in given)
    numbers = [(document.case, document.start + k) for document in given for k in range(document.count)]
    right = oracle.rollout_mask(RolloutMaskCase(one)).reshape(3, one.length, 3, one.length)
    blocks = []
    for s in range(3):
        block = np.zeros((rows, s + 1, rows), dtype=bool)
        for i, (_, query) in enumerate(numbers):
            block[i] = right[s, query, : s + 1][:, [key for _, key in numbers]]
        blocks.append(block.reshape(rows, -1))
    assert (shared.placed(blocks, given, rows, one.length) == right.reshape(3, one.length, -1)).all()
    with pytest.raises(ValueError, match="reshape"):
        shared.placed([blocks[0][1:]], given, rows, one.length)
