"""Paged storage: moves, page edges, shared blocks, failures at every change, and no block that none reaches."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Callable

import numpy as np
import pytest

from conformance.publish import asking, histories
from conformance.publish.cases import (
    BACKWARDS,
    CHAIN,
    ENDS,
    GAPS,
    MAPPED,
    MIXED,
    NOTHING,
    RAGGED,
    TWINS,
    WITHOUT_ROOT,
    a_round,
)
from conformance.publish.history import History, Join, Together
from conformance.publish.model import Model
from oracle import paged
from oracle import publish as flat
from oracle.blocks import DRAFT, FEATURE, KV, SCRATCH, Interrupted, OutOfBlocks
from oracle.errors import BadInput
from oracle.moves import ordered
from oracle.paged import Store
from oracle.types import CommittedState, PublishCase

SIZES = (1, 2, 3, 4, 16)
EVERY = (*GAPS, *MAPPED, *TWINS, *NOTHING, *WITHOUT_ROOT, *ENDS)


def assert_same(found: CommittedState, right: CommittedState) -> None:
    for name in asking.FIELDS:
        assert asking.same(getattr(found, name), getattr(right, name)), name


def assert_sound(store: Store) -> None:
    """Allocated is reachable, holder by holder, and a block is free or held."""
    assert store.allocated() == store.reachable()
    free = store.catalogue.free
    assert len(set(free)) == len(free)
    assert set(free) | set(store.reachable()) == set(range(store.blocks))


def turn(name: str, case: PublishCase) -> paged.Turn:
    return name, case.verified, case.decision, case.limits


def held(*cases: PublishCase, blocks: int = 60, block_size: int = 4) -> Store:
    store = Store(blocks, block_size)
    for i, case in enumerate(cases):
        store.load(str(i), case.state)
    return store


# ---- moves


@pytest.mark.parametrize("size", range(6))
def test_every_way_to_move_keeps_every_row(size: int) -> None:
    """All distinct sources for the first places of an array of one place more than there are moves."""
    for sources in itertools.permutations(range(size + 1), size):
        array = {place: 10 + place for place in range(size + 1)}
        for to, source in ordered(dict(enumerate(sources))):
            array[to] = array[source]
        assert [array[place] for place in range(size)] == [10 + source for source in sources]


def test_a_row_that_stays_is_not_moved() -> None:
    assert ordered({3: 3, 4: 4}) == []
    assert ordered({3: 3, 4: 6, 5: 4}) == [(5, 4), (4, 6)]


def test_a_cycle_goes_through_the_scratch_place() -> None:
    assert ordered({0: 1, 1: 0}) == [(SCRATCH, 0), (0, 1), (1, SCRATCH)]


# ---- rounds


@pytest.mark.parametrize("draft_kv", ["recomputed", "kept"])
@pytest.mark.parametrize("block_size", SIZES)
def test_it_publishes_what_the_flat_oracle_publishes(block_size: int, draft_kv: str) -> None:
    for cases in ([case] for case in EVERY):
        assert_same(paged.publish(cases, block_size, draft_kv)[0], flat.publish(cases, draft_kv)[0])
    for call in (RAGGED, MIXED):
        found = paged.publish(call.rounds, block_size, draft_kv)
        for state, right in zip(found, flat.publish(call.rounds, draft_kv), strict=True):
            assert_same(state, right)


def test_rows_cross_the_edge_of_a_page() -> None:
    """Three committed rows in blocks of four: rows 0 and 2 of the verification stand on both sides of the edge."""
    case = a_round((-1, -1), 1, prompt=2, output=2)
    store = held(case)
    (after,) = store.publish([turn("0", case)])
    assert after.kv.tolist() == [1000, 1001, 1002, 1500, 1502]
    request = store.request("0")
    assert len(request.blocks) == 2
    first, second = request.blocks
    assert store.slots[KV, first * 4 : first * 4 + 4].tolist() == [1000, 1001, 1002, 1500]
    assert store.read(KV, second * 4) == 1502


def test_sources_are_destinations() -> None:
    """Rows 4, 3, 2, 1, 0 go to places 0, 1, 2, 3, 4 behind the committed ones."""
    store = held(BACKWARDS, block_size=3)
    (after,) = store.publish([turn("0", BACKWARDS)])
    assert after.kv.tolist() == [2000, 2001, 2002, 2003, 2504, 2503, 2502, 2501, 2500]
    assert_sound(store)


def test_blocks_behind_the_accepted_rows_are_given_back() -> None:
    case = a_round(CHAIN, -1, prompt=3, output=1)  # three rows and five of the verification, one of them accepted
    store = held(case, block_size=2)
    assert len(store.request("0").blocks) == 2
    store.publish([turn("0", case)])
    assert len(store.request("0").blocks) == 2
    assert_sound(store)


# ---- requests come, share, and go


def test_a_prefix_is_shared_and_copied_where_it_is_written() -> None:
    one = a_round(CHAIN, 2, prompt=4, output=3)  # six rows: a block, and a half
    store = held(one, one)
    assert store.request("0").blocks == store.request("1").blocks
    assert set(store.allocated().values()) == {2}
    for name, right in (("1", one), ("0", one)):
        (after,) = store.publish([turn(name, right)])
        assert_same(after, flat.publish([right])[0])
        assert_sound(store)
    first, second = store.request("0"), store.request("1")
    assert first.blocks[0] == second.blocks[0] and not set(first.blocks[1:]) & set(second.blocks[1:])


def test_both_members_of_a_batch_write_behind_a_shared_prefix() -> None:
    one, other = a_round(CHAIN, 3, prompt=4, output=3), a_round((-1, -1), 1, prompt=4, output=3)
    store = held(one, other)
    found = store.publish([turn("1", other), turn("0", one)])
    for state, right in zip(found, flat.publish([other, one]), strict=True):
        assert_same(state, right)
    assert_sound(store)


def test_a_fork_goes_its_own_way() -> None:
    case = a_round(CHAIN, 1)
    store = held(case)
    store.fork("kept", "0")
    store.publish([turn("0", case)])
    assert_same(store.state("kept"), dataclasses.replace(case.state, freed=()))
    store.drop("0")
    assert_sound(store)
    (after,) = store.publish([turn("kept", case)])
    assert_same(after, flat.publish([case])[0])


def test_preempted_resumed_and_left() -> None:
    case = a_round(CHAIN, 3)
    store = held(case)
    (after,) = store.publish([turn("0", case)])
    store.preempt("0")
    assert not store.allocated() and store.state("0").output.tolist() == after.output.tolist()
    with pytest.raises(BadInput):  # a late round of a preempted request
        store.publish([turn("0", case)])
    anew = dataclasses.replace(after, kv=after.kv + 7, features=after.features + 7, draft_kv=after.draft_kv)
    store.resume("0", anew)
    assert store.state("0").kv.tolist() == anew.kv.tolist() and store.state("0").seed == anew.features[-1]
    assert_sound(store)
    store.drop("0")
    assert not store.allocated() and not store.catalogue.requests
    with pytest.raises(BadInput):
        store.state("0")


def test_back_to_an_earlier_length() -> None:
    case = a_round(CHAIN, 3, output=2)
    store = held(case, block_size=2)
    before = store.state("0")
    store.publish([turn("0", case)])
    store.rollback("0", 2)
    assert_same(store.state("0"), before)
    assert_sound(store)
    store.rollback("0", 0)
    state = store.state("0")
    assert (len(state.output), len(state.kv), state.pending) == (0, 2, case.state.prompt[-1])
    assert_sound(store)
    with pytest.raises(BadInput, match="tokens"):
        store.rollback("0", 1)


# ---- what leaves everything whole


def test_out_of_blocks() -> None:
    """The first member's round fits, the second one's does not: neither is published."""
    one, other = a_round(CHAIN, 3), a_round(CHAIN, 2, request=2)
    store = held(one, other, blocks=5)
    before = [store.state(name) for name in ("0", "1")]
    with pytest.raises(OutOfBlocks):
        store.publish([turn("0", one), turn("1", other)])
    for name, state in zip(("0", "1"), before):
        assert_same(store.state(name), state)
    assert_sound(store)
    store.drop("1")
    assert_same(store.publish([turn("0", one)])[0], flat.publish([one])[0])
    with pytest.raises(OutOfBlocks):
        store.load("2", a_round(prompt=30).state)
    assert_sound(store)


def test_a_bad_member_is_refused_before_anything_changes() -> None:
    one = a_round(CHAIN, 3)
    store = held(one, one)
    catalogue = store.catalogue
    with pytest.raises(BadInput, match=r"cases\[1\].*one round"):
        store.publish([turn("0", one), turn("0", one)])
    with pytest.raises(BadInput, match=r"cases\[1\].verified.row_token"):
        store.publish([turn("0", one), turn("1", a_round(CHAIN, 3, request=2))])
    assert store.catalogue is catalogue


OPERATIONS: dict[str, Callable[[Store], object]] = {
    "publish": lambda store: store.publish([turn("0", BACKWARDS), turn("1", RAGGED.rounds[3])]),
    "load": lambda store: store.load("2", BACKWARDS.state),
    "fork": lambda store: store.fork("2", "1"),
    "preempt": lambda store: store.preempt("0"),
    "drop": lambda store: store.drop("1"),
    "rollback": lambda store: store.rollback("1", 1),
}


@pytest.mark.parametrize("block_size", [1, 4, 16])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_failure_at_every_change(operation: str, block_size: int) -> None:
    """Whatever fails, at whichever change: states, tables and free blocks are as before, and it works afterwards."""
    act, failures = OPERATIONS[operation], 0
    right = held(BACKWARDS, RAGGED.rounds[3], block_size=block_size)
    right.fail_at(None)  # counts from here
    act(right)
    store = held(BACKWARDS, RAGGED.rounds[3], block_size=block_size)
    before, catalogue = [store.state(name) for name in ("0", "1")], store.catalogue
    while True:
        store.fail_at(failures)
        try:
            act(store)
        except Interrupted:
            failures += 1
        else:
            break
        assert store.catalogue is catalogue
        for name, state in zip(("0", "1"), before):
            assert_same(store.state(name), state)
        assert_sound(store)
    assert failures == right.changes > 0
    assert sorted(store.catalogue.requests) == sorted(right.catalogue.requests)
    for name in store.catalogue.requests:
        assert_same(store.state(name), right.state(name))
    assert_sound(store)


def test_a_step_beyond_the_last_change_interrupts_nothing() -> None:
    steps = itertools.takewhile(lambda step: paged.interrupted_publish([BACKWARDS], step, 4), itertools.count())
    last = len(list(steps))
    assert last > 15 and paged.interrupted_publish([BACKWARDS], last + 1, 4) is None
    (found,) = paged.interrupted_publish([BACKWARDS], last - 1, 4) or [None]
    assert found is not None
    assert_same(found, BACKWARDS.state)


def test_sizes_are_read() -> None:
    for size in (0, -1, 2.5, True):
        with pytest.raises(BadInput, match="block_size"):
            paged.publish([BACKWARDS], size)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="step"):
        paged.interrupted_publish([BACKWARDS], -1)


# ---- many rounds in one store


@pytest.mark.parametrize("block_size", [1, 4, 16])
@pytest.mark.parametrize("name", ["CHAINS", "TREES", "ENDS", "SHARED"])
def test_a_history_in_one_store(name: str, block_size: int) -> None:
    """Requests stay in the store from round to round; its states are the model's, and no block is lost."""
    history: History = getattr(histories, name)
    model, store, chance = Model(), Store(80, block_size), random.Random(block_size)
    for step in history.steps:
        if isinstance(step, Together):
            cases = [model.case(one) for one in step.turns]
            for one, case in zip(step.turns, cases):
                model.requests[one.request].publish(case, kept=False)
            turns = [turn(str(one.request), case) for one, case in zip(step.turns, cases)]
            store.fail_at(chance.randrange(40))
            try:
                store.publish(turns)
            except Interrupted:
                assert_sound(store)
                store.fail_at(None)
                store.publish(turns)
            store.fail_at(None)
        else:
            model.take(step)
            if isinstance(step, Join):
                store.load(str(step.request), model.requests[step.request].state())
            else:
                store.drop(str(step.request))
        for request, truth in model.requests.items():
            assert_same(store.state(str(request)), truth.state())
        assert_sound(store)
    for request in model.requests:
        store.drop(str(request))
    assert not store.allocated() and len(store.catalogue.free) == store.blocks


class NeverTrims(Store):
    """Gives no block back after a round."""

    def _trimmed(self, work: object, table: list[int], length: int) -> tuple[int, ...]:
        return tuple(table)


class ForgetsACopy(Store):
    """Copies a shared block, and puts the copy into no table."""

    def writable(self, work: paged.Work, request: paged.Request, first: int) -> list[int]:
        super().writable(work, request, first)
        return list(request.blocks)


def test_a_lost_block_shows() -> None:
    """The two ways in which allocated and reachable part; nothing else tells, since the rows are right."""
    one = a_round(CHAIN, -1, prompt=4, output=3)
    store = NeverTrims(20, 2)
    store.load("0", one.state)
    store.publish([turn("0", one)])
    assert len(store.request("0").blocks) > store.blocks_for(len(store.state("0").kv))
    store = ForgetsACopy(20, 4)
    store.load("0", one.state)
    store.load("1", one.state)
    store.publish([turn("0", one)])
    assert store.allocated() != store.reachable()


def test_slots_hold_what_a_request_holds() -> None:
    case = a_round(CHAIN, 1)
    store = held(case, block_size=16)
    (block,) = store.request("0").blocks
    slots = store.slots[:, block * 16 : block * 16 + 5]
    assert slots[KV, :4].tolist() == case.state.kv.tolist()
    assert slots[FEATURE, :4].tolist() == case.state.features.tolist()
    assert slots[DRAFT, :4].tolist() == np.asarray(case.state.draft_kv).tolist()
    assert np.isnan(slots[:, 4]).all()
