"""The golden vectors of metrics: tiny runs, their ratios as rationals, and runs that are refused."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from conformance.fixtures.flags import UNCHANGED
from conformance.fixtures.golden import Answer, Flag, Golden
from conformance.metrics import cases
from conformance.metrics.asking import OPERATION, QUOTIENTS
from conformance.metrics.cases import run
from conformance.roads import metrics as road
from conformance.verdicts import HarnessError
from oracle import metrics as oracle
from oracle.errors import BadInput
from oracle.types import Metrics, RoundsCase

ROUNDINGS = 5
"""Two sums are cast, divided, and the answer is cast: γ(4), which is below 5u, times the largest ratio of the case."""
DRAFTS, FRONTIERS = "accepted_count=drafts", "accepted_count=drafts_and_frontier"

_GITHUB = "https://github.com/"
FLAGS: Mapping[str, Flag] = {
    DRAFTS: Flag("convention", "The accepted are drafts alone."),
    FRONTIERS: Flag(
        "convention",
        "The frontier of each round counts among the accepted, but not in the rate.",
        (f"{_GITHUB}SafeAILab/EAGLE/issues/132",),
    ),
    "stop cut": Flag(
        "fault",
        "Accepted drafts behind a stop token are counted as tokens that came out.",
        (f"{_GITHUB}vllm-project/vllm/issues/56101", f"{_GITHUB}vllm-project/vllm/issues/27077"),
    ),
    "ragged drafts": Flag(
        "fault",
        "A number of drafts that is configured stands for those that were made.",
        (f"{_GITHUB}NVIDIA/TensorRT-LLM/issues/12905",),
    ),
    "drafting off": Flag(
        "fault",
        "Rounds without drafts show the rate of the last ones that had any.",
        (f"{_GITHUB}NVIDIA/TensorRT-LLM/issues/9855",),
    ),
    "workers": Flag(
        "fault",
        "What one worker counted is divided by what all of them did, or stands for it.",
        (f"{_GITHUB}vllm-project/speculators/issues/1095", f"{_GITHUB}NVIDIA/TensorRT-LLM/issues/17082"),
    ),
    "unreached": Flag("edge", "No round reaches some depth, and there is nothing to divide by."),
}

RIGHT = run([(3, 2, 3), (2, 1, 2)], [0, 1])
"""A good run, of which refused ones differ in one field."""
SHORT = run([(3, 1, 2), (2, 2, 3), (3, 0, 1)])
OFF_AND_ON = run([(0, 0, 1), (4, 3, 4), (0, 0, 1)])
TURNS = run([(2, 2, 3)] * 1_050 + [(2, 0, 1)] * 1_050)
"""A run whose second half is not like its first."""
DEEP = run([(8_193, 8_193, 8_194)] * 2_049)
"""16 787 457 drafts: an odd number beyond 2²⁴, and so no float32."""


def golden(case: RoundsCase, description: str, *clauses: int, flags: tuple[str, ...] = (DRAFTS,)) -> Golden:
    names = tuple(f"METRICS-{clause}" for clause in clauses)
    return Golden(OPERATION, names, description, {"case": case}, flags)


def flagged(flag: str, case: RoundsCase, description: str, *clauses: int) -> Golden:
    return golden(case, description, *clauses, flags=(DRAFTS, flag))


def refused(case: RoundsCase, description: str, clause: int) -> Golden:
    return golden(case, description, clause, flags=("hostile",))


def but(**changes: Any) -> RoundsCase:
    return dataclasses.replace(RIGHT, **changes)


REFUSED: Mapping[Golden, str] = {
    refused(but(emitted=RIGHT.emitted[:1]), "Vectors of different lengths are refused", 901): "emitted",
    refused(but(accepted=RIGHT.accepted[:1]), "One number is not taken for those of all rounds", 901): "accepted",
    refused(but(drafted=np.array([0.5, 1.5])), "Half drafts are refused", 901): "drafted",
    refused(run([(2, 1, 2), (3, -1, 1)]), "A negative count of accepted drafts is refused", 902): "accepted",
    refused(run([(-1, -1, 1)]), "A negative count of drafts is refused", 902): "drafted",
    refused(run([(5, 5, 6), (1, 2, 2), (7, 0, 1)]), "More drafts accepted than drafted are refused", 903): "accepted",
    refused(run([(0, 1, 1)]), "A draft that is accepted and was never made is refused", 903): "accepted",
    refused(run([(2, 1, 0)]), "A round that emits nothing is refused", 904): "emitted",
    refused(run([(3, 3, 4), (0, 0, 2)]), "A round with two frontiers is refused", 904): "emitted",
}
"""Refused runs → the field that is wrong with them."""

GOLDEN: tuple[Golden, ...] = (
    flagged("empty", cases.NO_ROUNDS, "Without rounds every count is 0, and every ratio undefined", 102, 501),
    golden(cases.ONE, "Two of four drafts are accepted, and the frontier is emitted beside them", 203, 204, 402),
    flagged("drafting off", cases.OFF, "Rounds without drafts have no rate, whatever was counted before", 101, 502),
    flagged("stop cut", cases.CUT, "Accepted drafts behind a stop token are not emitted", 204, 301),
    golden(cases.CERTAIN, "Every draft is accepted, and acceptance is 1 at every depth", 303, 402),
    flagged("unreached", cases.REFUSED, "Every draft is refused: only the first depth is ever reached", 401, 503),
    golden(cases.STEADY, "Acceptance at a depth is among the rounds that accepted all before it", 202, 302, 402),
    flagged(
        "ragged drafts", cases.TWO_DEPTHS, "The rate of two depths is a quotient of sums, no mean of rates", 304, 503
    ),
    flagged("unreached", cases.UNREACHED, "A depth that one round lost, and no other drafted, is undefined", 401, 503),
    golden(cases.PAUSES, "Rounds that draft nothing are rounds", 201, 301, 302),
    flagged(UNCHANGED, cases.FALLING, "Who accepts all of a short draft is not refused one depth below", 103, 403),
    flagged("ragged drafts", cases.RISING, "Drafts get deeper from round to round", 202, 304, 403),
    flagged("workers", cases.TWO_WORKERS, "Two workers each accept the one draft they made, which is all", 601, 603),
    flagged("workers", cases.UNEQUAL, "One worker has most of the rounds: ratios are of both workers' sums", 602),
    flagged("workers", cases.IDLE, "A worker that drafts nothing has rounds and tokens all the same", 601, 602),
    flagged("workers", cases.OWN_DEPTHS, "Workers draft to depths of their own, and their ids have gaps", 602, 603),
    flagged("large", TURNS, "Ratios of a long run are those of all its rounds, not of the latest", 702),
    flagged("large", DEEP, "Sums beyond 16 bits, and beyond the integers of a float32, are exact", 701),
    golden(SHORT, "A rate has no frontiers, also where the accepted have them", 203, 302, 303, flags=(FRONTIERS,)),
    golden(OFF_AND_ON, "A round without drafts has a frontier that is counted", 203, 302, flags=(FRONTIERS,)),
    *REFUSED,
)

UNTOUCHED: Mapping[str, str] = {}

UNSHOWN: Mapping[str, str] = {
    "CountsIn32Bits": "a sum beyond 32 bits takes forty thousand rounds of drafts as deep, a megabyte of them",
}


def answer(golden: Golden) -> Answer:
    """By the oracle, and by walking the rounds; ratios are exact quotients."""
    case = golden.arguments["case"]
    if golden in REFUSED:
        return _refusal(case, REFUSED[golden])
    rounds, drafted, accepted, emitted = road.counts(case)
    counted = accepted + (rounds if FRONTIERS in golden.flags else 0)
    sums = {"rounds": rounds, "drafted": drafted, "accepted": counted, "emitted": emitted}
    ratios: dict[str, Any] = {name: road.quotient(sums[part], sums[whole]) for name, (part, whole) in QUOTIENTS.items()}
    ratios["rate"] = road.quotient(accepted, drafted)  # of drafts under either convention
    by_depth: Any = tuple(road.quotient(passed, tried) for passed, tried in road.by_depth(case))
    right = Metrics(**sums, **ratios, by_depth=by_depth)
    ours = oracle.summarise_rounds(case)
    if FRONTIERS in golden.flags:
        ours = dataclasses.replace(ours, accepted=counted, accepted_per_round=counted / rounds)
    floats: dict[str, Any] = {name: _float(ratio) for name, ratio in ratios.items()}
    if ours != dataclasses.replace(right, **floats, by_depth=tuple(map(_float, by_depth))):
        raise HarnessError(f"{golden.description}: the oracle and the walk of rounds disagree")
    scale = max(math.ceil(ratio) for ratio in (1, *ratios.values(), *by_depth) if ratio is not None)
    return Answer(right, ("oracle", "walk"), "rounding", {"roundings": ROUNDINGS, "scale": scale})


def _float(ratio: Any) -> float | None:
    return None if ratio is None else float(ratio)


def _refusal(case: RoundsCase, field: str) -> Answer:
    """By the oracle, and by the hand that made the case wrong in one field."""
    try:
        oracle.summarise_rounds(case)
    except BadInput as error:
        if error.field == field:
            return Answer(field, ("oracle", "construction"), "refusal")
    raise HarnessError(f"the oracle does not refuse the run for its field {field}")
