"""The golden vectors of acceptance: warping, verification in three ways, and drafts that a proposer draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from adapters.interface import Arithmetic
from conformance import compare
from conformance.acceptance import golden_drawing, golden_proposing, golden_warping
from conformance.acceptance.golden_greedy import GREEDY
from conformance.acceptance.golden_making import (
    FRONTIER,
    INCLUSIVE,
    OPERATOR,
    PER_NODE,
    Inclusive,
    Padded,
    Refused,
    Rounded,
    scheme_of,
)
from conformance.acceptance.golden_proposing import PROPOSED
from conformance.acceptance.golden_sampled import SAMPLED
from conformance.acceptance.golden_warping import EXACTLY, STAGES, WARPED
from conformance.fixtures.golden import Answer, Flag, Golden
from conformance.roads import acceptance as road
from conformance.roads import schemes
from conformance.verdicts import HarnessError
from oracle import acceptance as oracle
from oracle.errors import BadInput
from oracle.types import Coins, Decision, VerifyCase

GOLDEN: tuple[Golden, ...] = (*WARPED, *GREEDY, *SAMPLED, *golden_drawing.RANDOM, *PROPOSED)


def _scheme(name: str, told: str) -> tuple[str, Flag]:
    return f"coin_scheme={name}", Flag("convention", told)


FLAGS: Mapping[str, Flag] = dict(
    [
        _scheme("per_node", "Each draft that is tested spends a coin of its own."),
        _scheme("per_parent", "One coin is cut into the target's masses of all the children of a node."),
        _scheme("sample_and_match", "The coin draws the next token, and the child that carries it is stepped into."),
        _scheme("block", "The longest prefix of a chain is accepted that passes a test of its own."),
        ("frontier_coin=inverse_cdf", Flag("convention", "The frontier coin is read by inverse CDF, in token order.")),
        (OPERATOR, Flag("convention", "Where u·q equals p the draft is rejected.")),
        (STAGES, Flag("convention", "Temperature, top-k, top-p and min-p act in this order.")),
        (EXACTLY, Flag("convention", "Exactly k tokens survive top-k, the lower ids of those tied with the k-th.")),
        (INCLUSIVE, Flag("convention", "Where u·q equals p the draft is accepted.")),
    ]
)
USUAL: Mapping[str, tuple[str, ...]] = {
    "warp": (STAGES, EXACTLY),
    "verify_sampled": (PER_NODE, FRONTIER),
    "verify_random": (PER_NODE,),
}
"""What the answer to a case that is kept rests on."""
_PROMISE = "what an implementation promises of its seeds is no part of a case"
_BESIDE = "a random generator or an output stream of the process is no part of an answer"
UNTOUCHED: Mapping[str, str] = {
    "ACCEPTANCE-801": _PROMISE,
    "ACCEPTANCE-802": _BESIDE,
    "ACCEPTANCE-804": _PROMISE,
    "ACCEPTANCE-805": _BESIDE,
}
UNSHOWN: Mapping[str, str] = {
    "IgnoresItsPromise": _PROMISE,
    "DraftsAnewEachTime": _PROMISE,
    "OneStreamForTheBatch": _PROMISE,
    "SeedsTheGlobalGenerator": _BESIDE,
    "SeedsNumpy": _BESIDE,
    "PrintsItsDecisions": _BESIDE,
    "PrintsItsLaws": _BESIDE,
}


def answer(golden: Golden) -> Answer:
    """What two roads say. Raises `HarnessError` where they disagree."""
    if isinstance(golden, Refused):
        return _refusal(golden)
    if isinstance(golden, Padded):
        return _padded(golden)
    if isinstance(golden, Rounded):
        return _rounded(golden)
    return _ANSWERS[golden.operation](golden)


def _refusal(golden: Refused) -> Answer:
    try:
        getattr(oracle, golden.operation)(*golden.arguments.values())
    except BadInput as error:
        if error.field == golden.names:
            return Answer(golden.names, ("oracle", "by hand"), "refusal")
        raise HarnessError(f"{golden.description}: the oracle names the field {error.field}") from None
    raise HarnessError(f"{golden.description}: the oracle answers")


def _padded(golden: Golden) -> Answer:
    """The one case is a chain; what comes before its padding is decided as if it were all there is."""
    (case,) = golden.arguments["cases"]
    n = case.token.tolist().index(-1)
    rows = case.draft_probs if case.draft_probs is None else case.draft_probs[: n + 1]
    cut = VerifyCase(case.parent[:n], case.token[:n], case.target_probs[: n + 1], case.proposal, rows)
    if golden.operation == "verify_greedy":
        found, right = oracle.verify_greedy([cut])[0], road.greedy(cut)
        frontiers = [right.frontier]
    else:
        (spent,) = golden.arguments["coins"]
        found, right = (
            oracle.verify_sampled([cut], [Coins(spent.accept[:n], spent.frontier)])[0],
            road.decide(cut, spent).decision,
        )
        frontiers = np.flatnonzero(cut.target_probs[len(right.path)]).tolist()
    _agreed(golden, [found], [right], "")
    return _one_of([[Decision(right.path, v)] for v in frontiers], refused=True)


def _rounded(golden: Golden) -> Answer:
    """The one case is decided one way or the other, as the arithmetic of float64 may round."""
    (case,), (spent,) = golden.arguments["cases"], golden.arguments["coins"]
    ways = road.admissible(case, spent, compare.slack(Arithmetic(), case.target_probs.shape[1]))
    right = [trace.decision for trace in ways]
    if oracle.verify_sampled([case], [spent])[0] not in right:
        raise HarnessError(f"{golden.description}: the oracle decides as rounding cannot")
    return _one_of([[decision] for decision in right], refused=False)


def _one_of(answers: list[list[Decision]], refused: bool) -> Answer:
    return Answer({"relation": "one_of", "answers": answers, "refused": refused}, ("oracle", "rationals"), "relation")


def _greedy(golden: Golden) -> Answer:
    cases = golden.arguments["cases"]
    return _agreed(golden, oracle.verify_greedy(cases), [road.greedy(case) for case in cases], "sorted order")


def _sampled(golden: Golden) -> Answer:
    cases, spent = golden.arguments["cases"], golden.arguments["coins"]
    scheme = scheme_of(golden.flags)
    if isinstance(golden, Inclusive):  # where the tie rejects, the coin just below it accepts
        spent = [Coins(np.nextafter(one.accept, 0), one.frontier) for one in spent]
    found = oracle.verify_sampled(cases, spent, scheme)
    if scheme == "per_node":
        right = [road.decide(case, one).decision for case, one in zip(cases, spent)]
    else:
        right = [schemes.admissible(case, one, scheme, None)[0].decision for case, one in zip(cases, spent)]
    return _agreed(golden, found, right, "rationals")


def _agreed(golden: Golden, found: list[Decision], right: list[Decision], name: str) -> Answer:
    if found != right:
        raise HarnessError(f"{golden.description}: the oracle decides {found}, the second road {right}")
    return Answer(right, ("oracle", name))


_ANSWERS: Mapping[str, Callable[[Golden], Answer]] = {
    "warp": golden_warping.answer,
    "verify_greedy": _greedy,
    "verify_sampled": _sampled,
    "verify_random": golden_drawing.answer,
    "propose": golden_proposing.answer,
}
