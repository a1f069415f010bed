"""Row compilers with one fault each: structure, existence and supervision; `rows_rollout` holds the others.

`--impl=adapters.faulty.rows:Name` names any of them. `refutes` was written down before the run.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from adapters.faulty.compiler import Address, Rows
from adapters.faulty.rows_rollout import *  # noqa: F403 - one address for every fault
from adapters.interface import NotApplicable
from oracle.types import GatherCase, GatheredRows, RowPlan, SupervisionCase, TokenBatch

# ---- structure


class VisibleOverAddresses(Rows):
    """Says who sees whom for every two addresses, not for every two rows."""

    refutes = "ROWS-101"

    @classmethod
    def planned(cls, batch: TokenBatch, rows: list[Address], hard: bool) -> RowPlan:
        length = batch.valid.shape[1]
        wide = np.tril(np.ones((length, length), dtype=bool))
        return dataclasses.replace(super().planned(batch, rows, hard), visible=wide)


class FlagsAsNumbers(Rows):
    """Returns supervision as 0 and 1 in floating point."""

    refutes = "ROWS-101"

    @classmethod
    def planned(cls, batch: TokenBatch, rows: list[Address], hard: bool) -> RowPlan:
        plan = super().planned(batch, rows, hard)
        return dataclasses.replace(plan, supervise=plan.supervise.astype(float))


class AddressByAddress(Rows):
    """Orders rows by source first, so that batch rows interleave."""

    refutes = "ROWS-102"

    @classmethod
    def sources(cls, batch: TokenBatch) -> list[Address]:
        return sorted(super().sources(batch), key=lambda row: (row[1], row[0]))


class ARowForAnEmptyBatch(Rows):
    """Fills a batch without rows with one row at address 0, so that no tensor is empty."""

    refutes = "ROWS-103"

    @classmethod
    def sources(cls, batch: TokenBatch) -> list[Address]:
        return super().sources(batch) or ([(0, 0)] if batch.valid.size else [])


class ClearsTheLastFlagInPlace(Rows):
    """Clears the flag of each batch row's last address in the batch that it was handed (SafeAILab/EAGLE)."""

    refutes = "ROWS-104"

    @classmethod
    def soft_rows(cls, batch: TokenBatch) -> RowPlan:
        batch.supervise[:, -1:] = False
        return super().soft_rows(batch)


# ---- existence


class DropsTheLastRow(Rows):
    """Asks for the token two addresses on even where only a target law is needed."""

    refutes = "ROWS-201"

    @classmethod
    def sources(cls, batch: TokenBatch) -> list[Address]:
        return [(b, t) for b, t in super().sources(batch) if cls.exists(batch, b, t + 1)]


class KeepsTheLastRow(Rows):
    """Keeps a row for the last token, whose next one is the first (a roll instead of a shift)."""

    refutes = "ROWS-201"

    @classmethod
    def exists(cls, batch: TokenBatch, b: int, t: int) -> bool:
        after = (t + 1) % batch.valid.shape[1]
        return after != t and cls.holds(batch, b, t) and cls.holds(batch, b, after) and cls.same(batch, b, t, after)

    @classmethod
    def planned(cls, batch: TokenBatch, rows: list[Address], hard: bool) -> RowPlan:
        plan, length = super().planned(batch, rows, hard), max(batch.valid.shape[1], 1)
        return dataclasses.replace(plan, advanced=plan.advanced % length, target=plan.target % length)


class PaddingIsAToken(Rows):
    """Compares segments and never looks whether the next address is valid."""

    refutes = "ROWS-202"

    @classmethod
    def exists(cls, batch: TokenBatch, b: int, t: int) -> bool:
        return cls.holds(batch, b, t) and t + 1 < batch.valid.shape[1] and cls.same(batch, b, t, t + 1)


class CountsValidTokens(Rows):
    """Takes the first S valid tokens of a batch row to be its first S addresses, wherever they stand."""

    refutes = "ROWS-202"

    @classmethod
    def holds(cls, batch: TokenBatch, b: int, t: int) -> bool:
        return 0 <= t < int(batch.valid[b].sum())


class CrossesSegments(Rows):
    """Lets the last token of a packed sequence go on to the first of the next (vllm-project/speculators)."""

    refutes = "ROWS-203"

    @classmethod
    def exists(cls, batch: TokenBatch, b: int, t: int) -> bool:
        return cls.holds(batch, b, t) and cls.holds(batch, b, t + 1)


class CrossesBatchRows(Rows):
    """Works on the batch as one long row: equal segment ids of two batch rows are one segment."""

    refutes = "ROWS-204"

    @classmethod
    def exists(cls, batch: TokenBatch, b: int, t: int) -> bool:
        rows, length = batch.valid.shape
        if t + 1 < length or b + 1 == rows:
            return super().exists(batch, b, t)
        return bool(batch.valid[b, t] and batch.valid[b + 1, 0] and batch.segment[b, t] == batch.segment[b + 1, 0])

    gather_rows = None  # type: ignore[assignment]  # it shows its plan alone


class TokenOfTheSource(Rows):
    """Pairs a feature with its own token, and not with the next one (mlc-ai/mlc-llm#2266)."""

    refutes = "ROWS-205"

    @classmethod
    def advance(cls) -> int:
        return 0


class TargetOfTheSource(Rows):
    """Trains a row towards the feature that it is fed."""

    refutes = "ROWS-205"

    @classmethod
    def target(cls) -> int:
        return 0


# ---- supervision


class MaskShiftedTwice(Rows):
    """Shifts flags that are the rows' own once more (NVIDIA/Model-Optimizer#441)."""

    refutes = "ROWS-301"

    @classmethod
    def flag(cls, batch: TokenBatch, b: int, t: int) -> bool:
        return bool(batch.supervise[b, t + 1])


class EverythingSupervised(Rows):
    """Supervises every row that exists."""

    refutes = "ROWS-301"

    @classmethod
    def flag(cls, batch: TokenBatch, b: int, t: int) -> bool:
        return True


class UnsupervisedRowsDropped(Rows):
    """Leaves out the rows that are not supervised, and with them their context (sgl-project/SpecForge#555)."""

    refutes = "ROWS-302"

    @classmethod
    def soft_rows(cls, batch: TokenBatch) -> RowPlan:
        cls.validate(batch)
        kept = [(b, t) for b, t in cls.sources(batch) if batch.supervise[b, t]]
        return cls.planned(batch, kept, hard=False)


class SoftRowsLabelled(Rows):
    """Gives soft rows the labels of hard ones."""

    refutes = "ROWS-303"

    @classmethod
    def label(cls, batch: TokenBatch, b: int, t: int, hard: bool) -> int:
        return super().label(batch, b, t, True)


class HardRowsWithoutContext(Rows):
    """Drops the rows that have no label, instead of keeping them as context."""

    refutes = "ROWS-304"

    @classmethod
    def hard_sources(cls, batch: TokenBatch) -> list[Address]:
        return [(b, t) for b, t in cls.sources(batch) if cls.observed(batch, b, t)]


class HardRowsCountWithoutALabel(Rows):
    """Supervises a hard row whose label does not exist."""

    refutes = "ROWS-305"

    @classmethod
    def counts(cls, batch: TokenBatch, b: int, t: int, hard: bool) -> bool:
        return cls.flag(batch, b, t)


class LabelOfTheNextToken(Rows):
    """Labels a row with the token that it consumes."""

    refutes = "ROWS-306"

    @classmethod
    def label(cls, batch: TokenBatch, b: int, t: int, hard: bool) -> int:
        return int(batch.tokens[b, t + 1]) if super().label(batch, b, t, hard) >= 0 else -1


class OwnerTwice(Rows):
    """Counts the owner from the next token on, and so one token too far (sgl-project/SpecForge#885)."""

    refutes = "ROWS-307"

    @classmethod
    def ahead(cls, case: SupervisionCase) -> int:
        return super().ahead(case) + 1


class OwnerAcrossTheBorder(Rows):
    """Takes the flag of the owner's address whatever stands there."""

    refutes = "ROWS-308"

    @classmethod
    def owned(cls, batch: TokenBatch, source: Address, owner: int) -> bool:
        return cls.holds(batch, *source) and 0 <= owner < batch.valid.shape[1]


class DeclaresAnotherOwner(Rows, conventions={"mask_owner": "advanced"}):
    """Shifts no mask, and says that it does."""

    refutes = "ROWS-309"

    @classmethod
    def ahead(cls, case: SupervisionCase) -> int:
        if case.owner != "advanced":
            raise NotApplicable("its masks are of the next token")
        return 0


class SupervisesTheRowOnThePad(Rows, conventions={"last_row": "pad"}):
    """Keeps the last row of a sequence, pads its token and its target, and trains it (SafeAILab/EAGLE#317)."""

    refutes = "ROWS-310"

    @classmethod
    def gather_rows(cls, case: GatherCase) -> GatheredRows:
        found = super().gather_rows(case)
        last = [(b, t) for b, t in np.argwhere(case.batch.valid).tolist() if not cls.exists(case.batch, b, t)]

        def join(values: Any, more: list[Any]) -> Any:
            return np.concatenate([values, np.array(more, dtype=values.dtype).reshape(len(last), *values.shape[1:])])

        flags = [case.batch.supervise[row] for row in last]
        joined = GatheredRows(
            batch=join(found.batch, [b for b, _ in last]),
            feature=join(found.feature, [case.features[row] for row in last]),
            token=join(found.token, [0] * len(last)),
            target=join(found.target, [np.zeros(case.features.shape[2])] * len(last)),
            supervise=join(found.supervise, flags),
            position=join(found.position, [case.batch.position[row] for row in last]),
        )
        kept = [row for row in np.ndindex(*case.batch.valid.shape) if cls.exists(case.batch, *row)]
        order = sorted(range(len(joined.batch)), key=lambda r: [*kept, *last][r])
        return GatheredRows(**{name: value[order] for name, value in vars(joined).items()})
