"""Paged storage as an implementation of its own, which the flat oracle judges: `--impl=adapters.reference:paged_4`.

Each name says how many slots its blocks have. The one of four keeps a drafter's rows, the others recompute them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from adapters.interface import Declaration
from oracle import paged
from oracle.types import CommittedState, PublishCase

COST = {"publish": 1e-3, "interrupted_publish": 1e-3}


class _Paged:
    """A store is made for each call, and takes in the states of its cases."""

    DECLARATION: ClassVar[Declaration]
    block_size: ClassVar[int]
    draft_kv: ClassVar[str]

    def __init_subclass__(cls, block_size: int, draft_kv: str = "recomputed") -> None:
        cls.block_size, cls.draft_kv = block_size, draft_kv
        name = f"reference, blocks of {block_size}"
        cls.DECLARATION = Declaration(name, "0.1.0", conventions={"draft_kv": draft_kv}, cost=COST)

    @classmethod
    def publish(cls, cases: Sequence[PublishCase]) -> list[CommittedState]:
        return paged.publish(cases, cls.block_size, cls.draft_kv)

    @classmethod
    def interrupted_publish(cls, cases: Sequence[PublishCase], step: int) -> list[CommittedState] | None:
        return paged.interrupted_publish(cases, step, cls.block_size, cls.draft_kv)


class paged_1(_Paged, block_size=1):
    """A block a token: a place is a block."""


class paged_4(_Paged, block_size=4, draft_kv="kept"):
    """Rounds cross from block to block, and blocks are full, begun and shared."""


class paged_16(_Paged, block_size=16):
    """Most rounds stay within a block."""
