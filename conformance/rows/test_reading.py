"""Reading: what is gathered, bit by bit, and what is never touched."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st

from adapters.interface import DTYPES
from conformance.check import Check, Raised
from conformance.roads import rows as road
from conformance.rows import asking, strategies
from conformance.rows.cases import EDGES, LARGE, poisoned, trapped
from conformance.verdicts import ClauseViolation
from oracle.types import GatherCase, RolloutRowsCase, TokenBatch

OPERATIONS = ("soft_rows", "hard_rows", "rollout_rows")
HALVES = {"float64": np.float64, "float32": np.float32, "float16": np.float16}


@pytest.mark.clauses("ROWS-401")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_an_invalid_address_holds_changes_nothing(check: Check, operation: str) -> None:
    check.require(operation)

    def body(case: TokenBatch) -> None:
        clean, other = answer(check, operation, case), answer(check, operation, poisoned(case))
        for name, value in clean.items():
            if not np.array_equal(value, other[name]):
                raise ClauseViolation(
                    f"with other numbers at the invalid addresses {name} is {other[name].tolist()}, and not "
                    f"{value.tolist()}"
                )

    check.for_all(st.one_of(strategies.padded(), strategies.interrupted()), body, first=EDGES)


@pytest.mark.clauses("ROWS-402")
def test_gathered_rows_hold_what_stands_there(check: Check) -> None:
    check.require("gather_rows")
    dtype = HALVES.get(check.arithmetic.dtype, np.float32)

    def body(case: GatherCase) -> None:
        found = asking.tensors(check, case)
        plan = road.plan(case.batch)
        rows = [r for r in range(len(found.batch)) if np.any(found.target[r]) and found.token[r] != 0]
        if len(rows) != len(plan.source):
            raise ClauseViolation(f"there are {len(plan.source)} rows with a next token; the answer has {len(rows)}")
        for r, b, t in zip(rows, plan.batch.tolist(), plan.source.tolist()):
            for name, value, address in (("feature", found.feature[r], t), ("target", found.target[r], t + 1)):
                right = case.features[b, address].astype(dtype).astype(np.float64)
                if not np.array_equal(np.asarray(value, dtype=np.float64), right):
                    raise ClauseViolation(
                        f"batch row {b}, source {t}: its {name} is {value.tolist()}, and f[{address}] is "
                        f"{right.tolist()} in {check.arithmetic.dtype}"
                    )
            if found.token[r] != case.batch.tokens[b, t + 1]:
                raise ClauseViolation(
                    f"batch row {b}, source {t}: its token is {found.token[r]}, and x[{t + 1}] is "
                    f"{case.batch.tokens[b, t + 1]}"
                )

    check.for_all(gathers(), body, first=[filled(case, seed) for seed, case in enumerate((*EDGES, LARGE))])


@pytest.mark.clauses("ROWS-403")
def test_nothing_else_is_gathered(check: Check) -> None:
    check.require("gather_rows")

    def body(case: GatherCase) -> None:
        try:
            found = asking.tensors(check, case)
        except Raised as error:
            raise ClauseViolation(f"an address that no row has was read: {error.reason}") from error
        for name in ("feature", "target"):
            bad = np.flatnonzero(np.isnan(getattr(found, name)).any(axis=1))
            if len(bad):
                raise ClauseViolation(
                    f"the {name} of row {bad[0]}, of batch row {found.batch[bad[0]]}, holds NaN, which stands only at "
                    "addresses that no row has"
                )
        wild = [int(v) for v in found.token if v < 0 or v >= 10**6]
        if wild:
            raise ClauseViolation(f"token {wild[0]} was gathered, which stands only at addresses that no row has")

    # who keeps a last row as padding reads the feature of its source, so only invalid addresses are trapped
    pads = check.convention("last_row", "drop") == "pad"
    first = [trapped(case, pads) for case in EDGES]
    check.for_all(strategies.anything().map(lambda case: trapped(case, pads)), body, first=first)


@pytest.mark.clauses("ROWS-404")
def test_gathered_rows_are_supervised_as_planned(check: Check) -> None:
    check.require("gather_rows")

    def body(case: TokenBatch) -> None:
        found, right = asking.ask(check, "gather_rows", case), asking.expected(check, case)
        planned = dict(zip(zip(right.batch.tolist(), right.source.tolist()), right.supervise.tolist()))
        for key, flag in zip(found.keys, found.supervise):
            if key in planned and planned[key] != flag:
                raise ClauseViolation(
                    f"batch row {key[0]}, source {key[1]}: supervised {int(flag)}, planned {int(planned[key])}"
                )

    check.for_all(strategies.anything(), body, first=EDGES)


# ---- what these checks share


def answer(check: Check, operation: str, case: TokenBatch) -> dict[str, np.ndarray]:
    """Every vector of the answer by name."""
    if operation == "rollout_rows":
        # one step: what later ones read, the clauses of rollouts judge on batches that are poisoned from the start
        return dict(vars(asking.nodes(check, RolloutRowsCase(case, 1))[0]))
    return dict(vars(asking.plan(check, operation, case)))


@st.composite
def gathers(draw: st.DrawFn) -> GatherCase:
    """A batch with features that use every bit of their float32."""
    return filled(draw(strategies.anything()), draw(st.integers(0, 2**16)))


def filled(case: TokenBatch, seed: int) -> GatherCase:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(*case.valid.shape, 3)).astype(np.float32).astype(np.float64)
    features[~case.valid] = 0.0
    return GatherCase(case, features)


assert set(HALVES) <= set(DTYPES)
