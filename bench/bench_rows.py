"""What it costs to plan the rows of packed documents, to collate them, and to say who sees whom.

    python -m pytest bench/bench_rows.py

Eight documents whose rows fill S = 4096. The peer is speculators' collator with `shift_batch`: with features of width 1
it does little but plan. A collation has to copy its features and states, which bounds it from below: at d = 1024 no
collation is four times as fast as speculators', as a copy takes about half of its time; at d = 1 a copy is nothing, and
at d = 4096 the peer's new buffers cost most, too large for the allocator to keep. speculators makes its block mask by
torch's `create_block_mask`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask

from bench.side_by_side import Contestant, Target, bound, moved, peer, race
from oracle import rows as oracle
from oracle import types
from oracle.fast.collation import Document, PackedRows, pack_rows, row_buffers
from oracle.fast.rows import RowPlan, TokenBatch, rollout_rows, soft_rows

ROWS = 4096
LENGTHS = (700, 300, 512, 600, 400, 900, 350, 342)
"""Tokens of the documents; each of them gives a row less."""
DTYPE = torch.float16
OWNER = "advanced"


class Packed:
    """Documents of features three times as wide as states, as of three layers, and one behind another as a batch."""

    def __init__(self, width: int, rows: int = ROWS) -> None:
        lengths = [length * rows // ROWS for length in LENGTHS]
        lengths[-1] += rows + len(lengths) - sum(lengths)
        made = torch.Generator().manual_seed(0)
        total = sum(lengths)
        self.rows, self.width, self.lengths = rows, width, lengths
        self.tokens = torch.randint(0, 32000, (total,), generator=made)
        self.features = torch.randn(total, 3 * width, generator=made).to(DTYPE)
        self.states = torch.randn(total, width, generator=made).to(DTYPE)
        self.mask = torch.rand(total, generator=made) < 0.7
        parts = (each.split(lengths) for each in (self.tokens, self.features, self.states, self.mask))
        self.documents = [Document(*(part.clone() for part in each)) for each in zip(*parts)]
        self.out = row_buffers(rows, (3 * width, width), DTYPE)

    def collated(self) -> PackedRows:
        return pack_rows(self.documents, self.out, OWNER)

    def batch(self) -> TokenBatch:
        """Flags are those of the advanced token, as in the collation."""
        segment = torch.repeat_interleave(torch.tensor(self.lengths))
        position = torch.cat([torch.arange(length) for length in self.lengths])
        flags = torch.cat([torch.cat([each.mask[1:], torch.zeros(1, dtype=torch.bool)]) for each in self.documents])
        vectors = (self.tokens, torch.ones_like(flags), segment, position, flags)
        return TokenBatch(*(vector[None] for vector in vectors))

    def peer(self) -> Any:
        """The same documents for speculators."""
        names = ("tokens", "features", "states", "mask")
        inputs = {name: getattr(self, name).numpy() for name in names}
        inputs |= {"lengths": np.array(self.lengths), "size": np.array(self.rows)}
        return peer("adapters.speculators", "bench.peers.speculators:collation", inputs)


def dense(given: TokenBatch) -> tuple[Tensor, Tensor]:
    """The plain torch version: sources, and a square mask."""
    segment = given.segment[0]
    source = (segment[1:] == segment[:-1]).nonzero()[:, 0]
    row = segment[source]
    return source, (row[:, None] == row[None]) & torch.ones(len(row), len(row), dtype=torch.bool).tril()


def same_rows(found: PackedRows, other: Any) -> None:
    """speculators counts positions from 1."""
    if isinstance(other, PackedRows):
        pairs = {name: getattr(other, name) for name in ("token", "feature", "target", "supervise", "document")}
    else:
        assert_array_equal(other["position_ids"][0], found.position + 1)
        names = ("input_ids", "hidden_states", "verifier_last_hidden_states", "loss_mask", "document_ids")
        pairs = {
            own: other[name][0] for own, name in zip(("token", "feature", "target", "supervise", "document"), names)
        }
    for name, values in pairs.items():
        assert_array_equal(values, getattr(found, name), err_msg=name)


def planned(packed: Packed, batch: TokenBatch, growth: tuple[str, float] | None) -> dict[str, Any]:
    """The race's contestants and how their answers are compared."""

    def same(plan: RowPlan, other: Any) -> None:
        if isinstance(other, tuple):
            assert_array_equal(other[0], plan.source)
            assert_array_equal(other[1], plan.visibility.dense())
        elif isinstance(other, RowPlan | types.RowPlan):
            for name in ("source", "target", "supervise", "position", "label"):
                assert_array_equal(getattr(other, name), getattr(plan, name), err_msg=name)
        else:
            read = [packed.features[plan.source], packed.states[plan.target], plan.supervise, plan.position]
            rows = PackedRows(read[0], packed.tokens[plan.advanced], *read[1:], batch.segment[0, plan.source])
            same_rows(rows, other)

    contestants = [
        Contestant("fast", lambda: soft_rows(batch)),
        Contestant("fast, numbers not looked at", lambda: soft_rows(batch, validate=False)),
        Contestant("fast, from documents", packed.collated),
        packed.peer(),
        moved(packed.rows * (18 + 57)),  # bytes of an address that are read, and of a row that are written
    ]
    if packed.rows <= ROWS:  # a square of the rows
        contestants.append(Contestant("dense", lambda: dense(batch), calls=2))
    if packed.rows <= 256:
        case = types.TokenBatch(*(getattr(batch, name).numpy() for name in types.TokenBatch.__dataclass_fields__))
        contestants.append(Contestant("oracle", lambda: oracle.soft_rows(case), calls=1))
    return {"contestants": contestants, "same": same, "growth": growth}


def test_planning(benchmark: Any) -> None:
    packed = Packed(1)
    batch = packed.batch()
    how = planned(packed, batch, None)
    how["contestants"] += [
        Contestant("fast, of a size", lambda: soft_rows(batch, size=ROWS)),
        Contestant("fast, rollout of three steps", lambda: rollout_rows(batch, 3), compared=False),
    ]
    race(benchmark, f"rows planned, S = {ROWS}", **how, rounds=31, calls=20, targets=[Target("speculators", times=4)])


@pytest.mark.parametrize("rows", [256, 1024, 4096, 16384, 65536])
def test_planning_grows(benchmark: Any, rows: int) -> None:
    packed = Packed(1, rows)
    how = planned(packed, packed.batch(), ("rows", rows))
    race(benchmark, f"rows planned, S = {rows}", **how, rounds=9, calls=20, memory=True)


@pytest.mark.parametrize("width", [1, 64, 1024, 4096])
def test_collation(benchmark: Any, width: int) -> None:
    packed = Packed(width)
    buffers = [packed.out.feature, packed.out.target]
    source = [torch.randn_like(each) for each in buffers]
    size = sum(each.nbytes for each in buffers)
    contestants = [
        Contestant("fast", packed.collated),
        Contestant("fast, new buffers", lambda: pack_rows(packed.documents, fresh(width), OWNER)),
        packed.peer(),
        bound("copied, the buffers whole", lambda: [to.copy_(of) for to, of in zip(buffers, source)]),
        moved(2 * size),  # each byte is read and written
    ]
    asked = [] if width == 64 else [Target("speculators", times=4)]
    race(
        *(benchmark, f"collation, S = {ROWS}, d = {width}", contestants),
        same=same_rows,
        rounds=31 if width < 1024 else 15,
        calls=20 if width < 64 else 5 if width < 1024 else 1,
        targets=asked + ([Target("memory", within=1.25)] if width >= 1024 else []),
        growth=("width of a state", width),
    )


def fresh(width: int) -> PackedRows:
    return row_buffers(ROWS, (3 * width, width), DTYPE)


@pytest.mark.parametrize("rows", [1024, 4096])
def test_block_mask(benchmark: Any, rows: int) -> None:
    document = Packed(1, rows).collated().document.clone()

    def seen() -> Any:
        return PackedRows(*[document] * 6).visibility  # of its own, since one keeps what it finds

    def torchs() -> Any:
        return create_block_mask(seen().predicate, None, None, rows, rows, device="cpu")

    race(
        benchmark,
        f"blocks of 128, S = {rows}",
        [
            Contestant("fast", lambda: blocks(seen().block_mask())),
            Contestant("create_block_mask", lambda: blocks(torchs()), calls=1),
            peer(
                *("adapters.speculators", "bench.peers.speculators:block_mask", {"document": document.numpy()}), calls=1
            ),
            Contestant("documents and their lengths", lambda: seen().documents(), compared=False),
        ],
        same=same_blocks,
        rounds=9,
        calls=5,
        memory=True,
        growth=("rows", rows),
    )


def blocks(mask: Any) -> dict[str, Tensor]:
    names = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices")
    return {name: getattr(mask, name) for name in names}


def same_blocks(found: Any, other: Any) -> None:
    """The first indices of a row of blocks are meant, as many as there are."""
    for kind in ("", "full_"):
        number, place = (
            [np.asarray(each[f"{kind}{name}"])[0, 0] for each in (found, other)]
            for name in ("kv_num_blocks", "kv_indices")
        )
        assert_array_equal(*number)
        for i, count in enumerate(number[0]):
            assert_array_equal(*[np.sort(each[i, :count]) for each in place])
