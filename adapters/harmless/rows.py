"""Right row compilers that look different: other declared conventions, and rows kept as padding."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from adapters.faulty.compiler import Address, Node, Rows, ids
from adapters.faulty.rows import SupervisesTheRowOnThePad
from adapters.interface import NotApplicable
from oracle.types import Flags, GatherCase, GatheredRows, SupervisionCase, TokenBatch


class CountsPositionsFromOne(Rows, conventions={"position_base": "1"}):
    """Counts every position from 1, and declares it."""

    @classmethod
    def positions(cls, batch: TokenBatch, rows: list[Address]) -> Any:
        return ids([batch.position[b, t] + 1 for b, t in rows])

    @classmethod
    def stands(cls, batch: TokenBatch, node: Node) -> int:
        return super().stands(batch, node) + 1


class PositionsOfTheSource(Rows, conventions={"rollout_position": "own"}):
    """Lets a node stand where its source stands, and declares it."""

    @classmethod
    def stands(cls, batch: TokenBatch, node: Node) -> int:
        return int(batch.position[node[1], node[2] + node[0]])


class MaskOfTheNextToken(Rows, conventions={"mask_owner": "advanced"}):
    """Knows masks of the next token alone."""

    @classmethod
    def ahead(cls, case: SupervisionCase) -> int:
        if case.owner != "advanced":
            raise NotApplicable("its masks are of the next token")
        return 1


class KeepsTheRowOnThePad(Rows, conventions={"last_row": "pad"}):
    """Keeps the last row of a sequence as padding, and never supervises it."""

    @classmethod
    def gather_rows(cls, case: GatherCase) -> GatheredRows:
        last = np.array(
            [
                [not cls.exists(case.batch, b, t) for t in range(case.batch.valid.shape[1])]
                for b in range(len(case.batch.valid))
            ],
            dtype=bool,
        ).reshape(case.batch.valid.shape)
        cleared: Flags = case.batch.supervise & ~last
        batch = dataclasses.replace(case.batch, supervise=cleared)
        return SupervisesTheRowOnThePad.gather_rows(dataclasses.replace(case, batch=batch))
