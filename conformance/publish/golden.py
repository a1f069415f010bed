"""The golden vectors of publication: rounds whose rows spell their addresses, alone and in batches.

Most requests have a drafter that keeps no rows, so that they ask for no convention; those that have rows say which.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from conformance.fixtures.flags import UNCHANGED
from conformance.fixtures.golden import Answer, Flag, Golden
from conformance.publish import cases
from conformance.publish.asking import FIELDS, same
from conformance.publish.cases import CHAIN, PAD, ROOT, a_round, but, poisoned
from conformance.roads import publish as road
from conformance.verdicts import HarnessError
from oracle import publish as oracle
from oracle.errors import BadInput
from oracle.types import PublishCase

OPERATION = "publish"
RECOMPUTED, KEPT = "draft_kv=recomputed", "draft_kv=kept"

_GITHUB = "https://github.com/"
FLAGS: Mapping[str, Flag] = {
    RECOMPUTED: Flag("convention", "The drafter's row of a new token is made from the target's feature before it."),
    KEPT: Flag("convention", "The drafter's row of an accepted node is the one that drafting made."),
    "skipped rows": Flag(
        "fault",
        "Rows of a tree are kept by their number, as those of a chain.",
        (f"{_GITHUB}NVIDIA/TensorRT-LLM/issues/10343", f"{_GITHUB}openvinotoolkit/openvino/issues/38079"),
    ),
    "row map": Flag(
        "fault",
        "A node is taken for its row, or padding for a row.",
        (f"{_GITHUB}NVIDIA/TensorRT-LLM/issues/3456", f"{_GITHUB}HabanaAI/vllm-fork/pull/1780"),
    ),
    "one token twice": Flag("fault", "A row is looked up by its token, which other nodes have as well."),
    "stop inside": Flag(
        "fault",
        "What was accepted behind a stop token is published, in tokens, KV or features.",
        (f"{_GITHUB}huggingface/transformers/issues/47912", f"{_GITHUB}vllm-project/vllm/issues/35978"),
    ),
    "stop and limit": Flag(
        "fault",
        "Of a stop token and the length limit the wrong one ends the request.",
        (f"{_GITHUB}sgl-project/sglang/issues/31599", f"{_GITHUB}sgl-project/sglang/issues/33758"),
    ),
    "no root row": Flag("edge", "The root is no row of the verification input, and its KV is there already."),
}


def golden(
    rounds: PublishCase | Sequence[PublishCase], description: str, *clauses: int, flags: tuple[str, ...] = ()
) -> Golden:
    """Rounds of requests whose drafters keep no rows."""
    batch = [rounds] if isinstance(rounds, PublishCase) else list(rounds)
    names = tuple(f"PUBLISH-{clause}" for clause in clauses)
    several = ["batch"] if len(batch) > 1 else []
    touched = [UNCHANGED] if 102 in clauses or 1006 in clauses else []
    return Golden(
        OPERATION, names, description, {"cases": [undrafted(case) for case in batch]}, (*flags, *several, *touched)
    )


def flagged(flag: str, rounds: PublishCase | Sequence[PublishCase], description: str, *clauses: int) -> Golden:
    return golden(rounds, description, *clauses, flags=(flag,))


def drafted(convention: str, case: PublishCase, description: str, *clauses: int) -> Golden:
    """A round of a request whose drafter keeps rows, under one convention."""
    return dataclasses.replace(flagged(convention, case, description, *clauses), arguments={"cases": [case]})


def refused(rounds: PublishCase | Sequence[PublishCase], description: str, clause: int) -> Golden:
    return flagged("hostile", rounds, description, clause)


def undrafted(case: PublishCase) -> PublishCase:
    return but(case, state={"draft_kv": None}, verified={"draft_kv": None})


def again(case: PublishCase) -> PublishCase:
    """The round once more, on the state that it left."""
    return dataclasses.replace(case, state=dataclasses.replace(road.published(case), freed=()))


def next_round(before: PublishCase, tree: Sequence[int], end: int) -> PublishCase:
    """A round on the state that another one left; its rows have addresses of their own."""
    state = dataclasses.replace(road.published(before), freed=())
    made = a_round(tree, end, prompt=state.prompt.tolist(), output=state.output.tolist(), keeps=False)
    kv = made.verified.kv + len(state.kv) * 10
    return but(dataclasses.replace(made, state=state), verified={"kv": kv, "features": kv + 0.5})


TURNED = tuple(reversed(cases.MIXED.rounds))
TREE = a_round((-1, -1, 0, 1, 1, 4), 5, order=[2, ROOT, 5, 0, PAD, 1, 4, 3])
"""A path of three through rows that stand in no order, and padding."""
OVER = but(cases.PART, state={"finished": True, "finish_reason": "stop"})
FIRST = a_round((-1, -1, 0), 2, output=1, keeps=False)
SECOND = next_round(FIRST, (), ROOT)
THIRD = next_round(SECOND, (-1, -1, 1, 1), 3)
FULL = a_round(CHAIN, 1, output=4, max_new_tokens=4)
NO_ROOT = a_round(CHAIN, 1, order=range(4))
NONE_WAITS = a_round(pending=False, order=[PAD, ROOT])
AGAIN = but(cases.SKIPS, decision={"path": (0, 3, 0)})
NOWHERE = but(cases.SKIPS, decision={"path": (0, 99)})
SHORT = but(cases.WHOLE, state={"kv": cases.WHOLE.state.kv[:-1].copy()})
TWO_ROWS = but(cases.PART, verified={"row_node": np.array([-1, 3, 0, 1, 3])})

REFUSED: Mapping[Golden, str] = {
    refused(again(cases.WHOLE), "A round is published once", 1001): "cases[0].verified.row_token",
    refused(OVER, "A finished request publishes nothing", 1002): "cases[0].state.finished",
    refused(FULL, "A request at its limit publishes nothing", 1002): "cases[0].limits.max_new_tokens",
    refused(NO_ROOT, "A pending token needs its root row", 1003): "cases[0].verified.row_node",
    refused(NONE_WAITS, "A root row needs a pending token", 1003): "cases[0].verified.row_node",
    refused(AGAIN, "A path takes no node twice", 1004): "cases[0].decision.path",
    refused(TWO_ROWS, "No node has two rows", 1004): "cases[0].verified.row_node",
    refused(SHORT, "A state has KV for every token but the pending one", 1005): "cases[0].state.kv",
    refused([TREE, NOWHERE, cases.STOP_FIRST], "A bad member refuses the batch", 1006): "cases[1].decision.path",
}
"""Refused batches → the field that is wrong with them."""

GOLDEN: tuple[Golden, ...] = (
    flagged("empty", [], "A batch without requests has no states", 101),
    golden(cases.WHOLE, "All drafts of a chain are accepted, and the frontier is pending", 202, 302, 401, 501, 504),
    golden(cases.PART, "Half of a chain is accepted, and the rest is given back", 202, 301, 307, 502, 701),
    golden(cases.FIRST_ROUND, "The pending token is the last one of the prompt", 103, 201, 302),
    flagged("large", cases.BIG_IDS, "Token ids of more than 16 and of more than 31 bits", 202),
    golden(cases.NO_DRAFTS, "A round without drafts outputs the frontier alone", 203, 503),
    golden(cases.NONE_ACCEPTED, "A round that accepts no draft frees every draft", 203, 503, 701),
    flagged("skipped rows", cases.SKIPS, "A path skips the rows of siblings", 204, 303, 402, 702),
    flagged("skipped rows", cases.LATER_SIBLING, "A node is accepted behind its rejected sibling", 204, 303),
    flagged("row map", TREE, "Rows stand in no order, with padding among them", 102, 205, 305, 403, 703),
    flagged("row map", cases.BACKWARDS, "Every accepted row moves into the place of another", 305),
    flagged("poison", poisoned(cases.PADDED_FRONT), "Padding stands first and holds NaN", 205, 703, 903),
    flagged("row map", cases.SPARSE, "The nodes are some of a larger tree, by their own names", 205, 305, 701),
    flagged("one token twice", cases.COUSINS, "Two nodes hold one token, and the later one is accepted", 304, 402),
    flagged("no root row", cases.PREFILLED, "The root has no row: the KV grows by the path alone", 306, 403),
    flagged("no root row", cases.ROOTLESS_REJECTED, "The root has no row, and no draft is accepted", 306, 503),
    flagged("stop inside", cases.STOP_INSIDE, "A stop token inside the path ends every row", 601, 602, 603, 605, 704),
    golden(cases.STOP_LAST_ACCEPTED, "The path ends in a stop token, and there is no frontier", 601, 603),
    golden(cases.STOP_FRONTIER, "The frontier is a stop token: it is output and stays pending", 604, 605),
    golden(cases.LIMIT_IN_A_TREE, "The limit cuts a path through a tree", 606, 704),
    golden(cases.LIMIT_AT_PATH, "The path ends exactly on the limit, and there is no frontier", 606, 607),
    golden(cases.LIMIT_AT_FRONTIER, "The frontier is the last token allowed, and stays pending", 608),
    golden(cases.NEAR_LIMIT[0], "There is room for one more token", 504, 608),
    flagged("stop and limit", cases.STOP_THEN_LIMIT, "A stop token lies before the limit", 602, 609),
    flagged("stop and limit", cases.LIMIT_THEN_STOP, "The limit lies before a stop token", 606, 609),
    flagged("stop and limit", cases.STOP_AT_LIMIT[0], "A stop token is the last token allowed", 602, 606, 610),
    golden(cases.STOP_ELSEWHERE[0], "Stop tokens among rejected drafts end nothing", 611),
    golden(cases.STOP_ELSEWHERE[2], "A stop token of the prompt ends nothing", 611),
    flagged("poison", poisoned(cases.STOP_FIRST), "A round that is cut has a frontier that is no token", 601, 602, 903),
    drafted(RECOMPUTED, cases.WHOLE, "Draft rows are made anew from the target's features", 801, 802, 804),
    drafted(RECOMPUTED, cases.STOP_INSIDE, "Draft rows end with the output", 602, 801, 802, 805),
    drafted(KEPT, cases.SKIPS, "Draft rows of accepted nodes stay, and those of leaves are made", 801, 803, 804),
    golden(cases.RAGGED.rounds, "Requests accept four, one, one and six drafts", 901),
    golden(TURNED, "Requests that end, accept nothing or have no drafts are side by side", 602, 606, 902),
    golden(FIRST, "The first of three rounds of a request accepts two drafts", 1101, 1102, 1103),
    golden(SECOND, "The second of three rounds has no drafts", 1101, 1102, 1103),
    golden(THIRD, "The third of three rounds goes on behind a round without drafts", 1101, 1102, 1103),
    *REFUSED,
)

_KEPT_STATES = "takes states that the implementation keeps from round to round, and a file has none"
_INTERRUPTED = "takes a publication that is interrupted, and a file interrupts nothing"
UNTOUCHED: Mapping[str, str] = {
    **{f"PUBLISH-{clause}": _KEPT_STATES for clause in (1104, 1105, 1106, 1107)},
    **{f"PUBLISH-{clause}": _INTERRUPTED for clause in (1201, 1202)},
}

UNSHOWN: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "CommitsMemberByMember",
            "SwapsTheTableFirst",
            "UndoLogWithoutDraftRows",
            "WritesWhatTheOldTablesHold",
            "LeavesTheLengthOfAFailedRound",
            "TakesAFailedRoundForPublished",
            "TemporaryRowsStayAfterAFailure",
        ),
        _INTERRUPTED,
    ),
    **dict.fromkeys(
        (
            "WritesSharedBlocksInPlace",
            "RollbackDoesNothing",
            "WritesIntoTheStateItReturned",
            "ResumesWithTheOldRows",
            "DraftRowsSurvivePreemption",
            "PlacesOfTheLastRound",
            "PlacesOfTheFinished",
        ),
        _KEPT_STATES,
    ),
}


def answer(golden: Golden) -> Answer:
    """By the oracle, and by a journal with a record a token."""
    batch: Sequence[PublishCase] = golden.arguments["cases"]
    if golden in REFUSED:
        return _refusal(batch, REFUSED[golden])
    if not {RECOMPUTED, KEPT} & set(golden.flags) and any(case.state.draft_kv is not None for case in batch):
        raise HarnessError("the drafter keeps rows, and no flag says under which convention")
    draft_kv = "kept" if KEPT in golden.flags else "recomputed"
    right = [road.published(case, draft_kv) for case in batch]
    for state, ours in zip(right, oracle.publish(batch, draft_kv), strict=True):
        for name in FIELDS:
            if not same(getattr(state, name), getattr(ours, name)):
                raise HarnessError(f"{golden.description}: the oracle and the journal disagree about {name}")
    return Answer(right, ("oracle", "journal"))


def _refusal(batch: Sequence[PublishCase], field: str) -> Answer:
    """By the oracle, and by the hand that made the batch wrong in one field."""
    try:
        oracle.publish(batch)
    except BadInput as error:
        if error.field == field:
            return Answer(field, ("oracle", "construction"), "refusal")
        raise HarnessError(f"the oracle refuses {error.field}, and not {field}") from None
    raise HarnessError(f"the oracle does not refuse the batch for its field {field}")
