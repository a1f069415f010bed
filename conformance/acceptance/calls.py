"""Calling the three verifiers on a batch, and what of their answer the coins determine."""

from __future__ import annotations

from collections.abc import Sequence

from conformance import compare
from conformance.acceptance.cases import Batch, coins, copy
from conformance.check import Check
from conformance.verdicts import Inapplicable
from oracle.types import Coins, Decision, VerifyCase

OPERATIONS = ("verify_greedy", "verify_sampled", "verify_random")


def decide(check: Check, operation: str, batch: Batch) -> list[Decision]:
    """The implementation's decisions; it is handed arrays of its own."""
    cases = [copy(case) for case in batch.cases]
    if operation == "verify_greedy":
        found = check.call(operation, cases)
    elif operation == "verify_random":
        found = check.call(operation, cases, check.seed if batch.seed is None else batch.seed)
    else:
        spent = batch.coins or [coins([0.5] * len(case.parent), 0.5) for case in cases]
        found = check.call(operation, cases, [Coins(c.accept.copy(), c.frontier) for c in spent])
    return compare.decisions(found, len(cases), batch)


def sampled(check: Check, cases: Sequence[VerifyCase], spent: Sequence[Coins]) -> list[Decision]:
    return decide(check, "verify_sampled", Batch(tuple(cases), tuple(spent)))


def determined(check: Check, operation: str, decision: Decision) -> Decision:
    """The part of a decision that its inputs determine: all, or the path where the frontier coin is its own."""
    if operation == "verify_sampled" and check.convention("frontier_coin", "inverse_cdf") == "own":
        return Decision(decision.path, 0)
    return decision


def need_coins(check: Check, frontier: bool = False) -> None:
    """End the check unless the implementation's coins mean what the oracle's mean."""
    check.require("verify_sampled")
    scheme = check.convention("coin_scheme", "per_node")
    if scheme != "per_node":
        raise Inapplicable(f"its coins follow the scheme {scheme!r}; coin by coin only one scheme compares")
    if frontier and check.convention("frontier_coin", "inverse_cdf") != "inverse_cdf":
        raise Inapplicable("its frontier coin is its own, not a uniform read by inverse CDF")
