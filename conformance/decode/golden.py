"""The golden vectors of decoding: requests in ids below ten, and what holds between an engine's outputs for them.

No output is written down: every engine has a model of its own. The relations stand in `replaying`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from adapters import reference
from conformance.decode.replaying import broken
from conformance.fixtures.golden import Answer, Flag, Golden
from conformance.roads import decode as road
from conformance.verdicts import HarnessError
from oracle import decode as oracle
from oracle.errors import BadInput
from oracle.types import GenerateCase, LawCase

OPERATION = "generate"

_GITHUB = "https://github.com/"
FLAGS: Mapping[str, Flag] = {
    "ragged batch": Flag(
        "fault",
        "What one request of a batch accepted, or its padding, reaches another.",
        (f"{_GITHUB}sgl-project/sglang/issues/15790", f"{_GITHUB}NVIDIA/TensorRT-LLM/issues/3456"),
    ),
    "mixed drafts": Flag(
        "fault",
        "Requests without drafts get the tokens of those beside them.",
        (f"{_GITHUB}vllm-project/vllm/issues/7508", f"{_GITHUB}NVIDIA/TensorRT-LLM/issues/10160"),
    ),
    "stop in a run": Flag(
        "fault",
        "A stop token inside a run of accepted drafts is passed over, or its run is lost.",
        (f"{_GITHUB}huggingface/transformers/issues/47912", f"{_GITHUB}sgl-project/sglang/issues/31599"),
    ),
    "state left over": Flag(
        "fault",
        "Something of an earlier request reaches a later one that begins like it.",
        (f"{_GITHUB}sgl-project/sglang/issues/23456",),
    ),
    "seeded": Flag("edge", "Only an engine that promises to repeat its draws is judged by them."),
}

LENGTHS, REFUSALS = 201, 900
"""The clause about an output's length, and the group of those that refuse."""
PI = (3, 1, 4, 1, 5, 9, 2, 6, 5, 3)
E = (2, 7, 1, 8, 2, 8, 1, 8, 2, 8)
ROOT = (1, 4, 1, 4, 2, 1, 3, 5, 6, 2)
RAGGED = (PI[:5], E[:1], ROOT[:9], E[:3])


def requests(
    prompts: Sequence[Sequence[int]],
    limits: int | Sequence[int],
    temperatures: float | Sequence[float] = 0.0,
    drafts: Sequence[int] | None = None,
) -> GenerateCase:
    """A batch, speculative; each member has a seed of its own."""
    return GenerateCase(
        [np.array(prompt, dtype=np.int64) for prompt in prompts],
        limits if isinstance(limits, int) else np.array(limits, dtype=np.int64),
        temperatures if isinstance(temperatures, (int, float)) else np.array(temperatures, dtype=np.float64),
        True,
        np.array([1_000 + i for i in range(len(prompts))], dtype=np.int64),
        (),
        None if drafts is None else np.array(drafts, dtype=np.int64),
    )


def golden(case: GenerateCase, description: str, *clauses: int, flags: tuple[str, ...] = ()) -> Golden:
    """A case; whatever relation holds of a right one, lengths are compared as well (DECODE-201)."""
    touched = clauses if min(clauses) >= REFUSALS else sorted({*clauses, LENGTHS})
    return Golden(OPERATION, tuple(f"DECODE-{clause}" for clause in touched), description, {"case": case}, flags)


ALONE = requests([PI[:6]], 20)
ONE_TOKEN = requests([ROOT[:1]], 12)
ANY_DRAFTS = requests([E[:5]], 14)
AGAIN = requests([PI[:7]], 12)
WHOLE = requests(RAGGED, 12)
OWN_LIMITS = requests([PI[:9], E[:2], ROOT[:5]], [7, 1, 12])
LIMITS = requests([PI[:4]] * 8, range(1, 9))
LONG = requests([PI[:9], E[:8]], [11, 12])
OWN_DRAFTS = requests([PI[:5], E[:1], ROOT[:9], PI[1:5], E[1:4]], 10, drafts=[0, 3, 1, 0, 5])
TURNED = requests([ROOT[1:6], PI[2:4], E[:7]], [8, 11, 9])
MIXED = requests([PI[:5], ROOT[:3], E[:9], PI[:1], E[:6]], 10, [0.0, 1.0, 0.0, 0.7, 0.0])
SAMPLED_FIRST = requests([PI[:4], E[:8], ROOT[:2], PI[3:9]], [10, 12, 7, 12], [1.5, 0.0, 0.5, 0.0])
SAMPLED = requests([PI[:5], E[:1], PI[:9], ROOT[:3]], [9, 6, 11, 2], [1.0, 0.7, 0.3, 2.0])
ENDING = requests([PI[:5], E[:2], ROOT[:8]], 14)
INSIDE = requests([E[:5], PI[:3], ROOT[:7]], 13)
SEVERAL = requests([PI[2:7], ROOT[:2], E[:8]], 13)
AT_LIMIT = requests([PI[:5], E[:2], ROOT[:8]], [14, 9, 4])

PLAIN, TURNED_ROUND, OWN = ({"relation": name} for name in ("plain", "turned_round", "own_draws"))
_BATCH = ("batch",)
_RAGGED = ("batch", "ragged batch")
_DRAFTS = ("batch", "mixed drafts")
_STOPS = ("batch", "stop in a run")
_SEEDED = ("batch", "seeded")


def stops(*places: tuple[int, int]) -> Mapping[str, Any]:
    return {"relation": "stop_tokens", "stops": places}


RELATED: Mapping[Golden, Mapping[str, Any]] = {
    golden(ALONE, "A greedy request alone has the tokens of the plain engine", 101, 102, 105, 401): PLAIN,
    golden(ONE_TOKEN, "A prompt of one token leaves the drafter nothing to start from", 401): PLAIN,
    golden(ANY_DRAFTS, "A greedy output is the same for any number of drafts a round", 403): {
        "relation": "any_number_of_drafts",
        "draft_lengths": (0, 1, 2, 3, 7),
    },
    golden(AGAIN, "A request is asked again behind one that goes on from it", 402, flags=("state left over",)): {
        "relation": "asked_again"
    },
    golden(WHOLE, "Prompts of a batch have five, one, nine and three tokens", 104, 501, flags=_RAGGED): PLAIN,
    golden(OWN_LIMITS, "Every request has a limit of its own", 203, 501, 601, flags=_RAGGED): PLAIN,
    golden(LIMITS, "A limit falls at every place of a run", 201, 202, 601, flags=_BATCH): PLAIN,
    golden(LONG, "An output could begin with its prompt", 103, flags=_BATCH): PLAIN,
    golden(OWN_DRAFTS, "Requests of a batch draft no, three, one, no and five tokens", 502, flags=_DRAFTS): PLAIN,
    golden(TURNED, "A batch is turned round", 503, flags=_RAGGED): TURNED_ROUND,
    golden(MIXED, "Greedy requests stand beside sampled ones", 504, flags=_BATCH): PLAIN,
    golden(SAMPLED_FIRST, "A sampled request comes first, and greedy ones follow", 504, flags=_BATCH): PLAIN,
    golden(ENDING, "A stop token comes first in one output", 301, 602, flags=_STOPS): stops((1, 0)),
    golden(INSIDE, "A stop token lies inside a run", 301, 602, flags=_STOPS): stops((0, 6)),
    golden(SEVERAL, "Each of three stop tokens ends outputs", 302, flags=_STOPS): stops((0, 4), (1, 3), (2, 8)),
    golden(AT_LIMIT, "A stop token is the last token allowed", 301, 602, flags=_STOPS): stops((2, 3)),
    golden(SAMPLED, "A request draws by its own seed, whatever stands beside it", 801, 803, flags=_SEEDED): OWN,
}
"""Case → the relation that holds."""

FOREIGN = requests([[0, 1], [2**31 - 1, 1]], 3)
NEGATIVE = requests([[0, 1], [1, -1, 0]], 3)
NOTHING = requests([[0, 1], []], 3)
REFUSED: Mapping[Golden, str] = {
    golden(NOTHING, "A prompt without tokens is refused", 901, flags=("hostile",)): "prompts[1]",
    golden(FOREIGN, "A token beyond every vocabulary is refused", 901, flags=("hostile",)): "prompts[1]",
    golden(NEGATIVE, "A token below 0 is refused", 901, flags=("hostile",)): "prompts[1]",
    golden(requests([[0, 1]], 0), "A limit of no token is refused", 902, flags=("hostile",)): "max_new_tokens",
    golden(requests([[1, 0]], [-3]), "A negative limit is refused", 902, flags=("hostile",)): "max_new_tokens[0]",
    golden(requests([[0, 1]], 3, -1.0), "A negative temperature is refused", 902, flags=("hostile",)): "temperature",
}
"""Refused case → the field that is wrong with it."""
GOLDEN: tuple[Golden, ...] = (*RELATED, *REFUSED)

_LAW = "a law that nobody can write down takes thousands of requests of two engines"
UNTOUCHED: Mapping[str, str] = {f"DECODE-{clause}": _LAW for clause in (701, 702, 703, 704, 705, 802)}
UNSHOWN: Mapping[str, str] = dict.fromkeys(
    (
        "FirstTokenIsGreedy",
        "AcceptsEveryDraft",
        "RowOfTheWrongPlace",
        "SampledIsGreedy",
        "OneDraftIsVerified",
        "RejectedRowStaysWhereSampled",
        "ShowsTheDraftersLaw",
    ),
    _LAW,
)


def answer(golden: Golden) -> Answer:
    """What holds of the oracle's engine and, where a request is greedy, of what its laws alone say."""
    case: GenerateCase = golden.arguments["case"]
    if golden in REFUSED:
        return _refusal(case, REFUSED[golden])
    relation = RELATED.get(golden, PLAIN)  # of a kept case, too
    asked: list[GenerateCase] = []

    def call(operation: str, case: GenerateCase) -> Any:
        asked.append(case)
        return oracle.generate(case)

    if wrong := broken(relation, OPERATION, golden.arguments, call, reference.DECLARATION):
        raise HarnessError(f"the oracle breaks the relation: {wrong}")
    for one in asked:
        _agree(one)
    return Answer(relation, ("oracle", "laws"), "relation")


def _agree(case: GenerateCase) -> None:
    """`HarnessError` unless every greedy output is what the oracle's laws say, token by token."""
    count = len(case.prompts)
    temperatures = np.broadcast_to(case.temperature, count).tolist()
    limits = np.broadcast_to(case.max_new_tokens, count).tolist()
    for i, found in enumerate(oracle.generate(case)):
        if temperatures[i] == 0:
            right = road.greedy(_law, tuple(case.prompts[i].tolist()), limits[i], case.stop_tokens)
            if found.tokens.tolist() != right:
                raise HarnessError(f"request {i} is {found.tokens}, and the laws say {right}")


def _law(tokens: road.Tokens) -> Sequence[Any]:
    (row,) = oracle.next_law([LawCase(np.array(tokens, dtype=np.int64), 0.0)])
    return road.exact(row.tolist())


def _refusal(case: GenerateCase, field: str) -> Answer:
    """By the oracle, and by the hand that made the case wrong in one field."""
    try:
        oracle.generate(case)
    except BadInput as error:
        if error.field == field:
            return Answer(field, ("oracle", "construction"), "refusal")
        raise HarnessError(f"the oracle refuses {error.field}, and not {field}") from None
    raise HarnessError(f"the oracle does not refuse the case for its field {field}")
