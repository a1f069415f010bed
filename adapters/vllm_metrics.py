"""vLLM's counters of speculative decoding and the line that it logs of them: `adapters.vllm:metrics`.

The code under test is `Scheduler.make_spec_decoding_stats` with `SpecDecodingStats`, the counters of one engine step;
`SpecDecodingLogging`, which adds steps and engines up and logs their ratios; and `IterationStats`, which counts
generated tokens. Every round is a step of one request; the engines of several workers log together, as they do with
vLLM's aggregated logger. The scheduler counts a round only where it has drafts (`update_from_output`), so it is handed
no other here.

What is converted, and nothing else: the rate from per cent; the rates by position from the text that is logged, which
has three decimals. `rounds` is the sum of `num_drafts`. Where nothing is logged, every ratio is None.

vLLM names no accepted drafts a round: `accepted_per_round` is not shown. The number of speculative tokens is the
deepest draft.

Not applicable: vectors that are not integers of one length, and drafts of more than 512 tokens.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from adapters.interface import Declaration, Deviation, NotApplicable
from adapters.vllm_cases import version
from oracle.types import NOT_SHOWN, Metrics, RoundsCase

DEEPEST = 512
_CODE = "https://github.com/vllm-project/vllm/blob/main/vllm/v1/spec_decode/metrics.py"
_SCHEDULER = "https://github.com/vllm-project/vllm/blob/main/vllm/v1/core/sched/scheduler.py"
_CUT = "https://github.com/vllm-project/vllm/issues/56101"
_LENGTH = "the length is accepted drafts a round and one, also where a stop cuts"
_UNASKED = "counters take what they are given"
_BY_POSITION = "acceptance by position is divided by all rounds with drafts, and logged with three decimals"


def summarise(case: RoundsCase) -> Metrics:
    """Every round through vLLM's counters, and what it logs at the end."""
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.engine import EngineCoreOutput
    from vllm.v1.metrics.stats import IterationStats, RequestStateStats
    from vllm.v1.spec_decode.metrics import SpecDecodingLogging

    rounds = _rounds(case)
    deepest = max((drafted for drafted, _, _ in rounds), default=0)
    scheduler: Any = SimpleNamespace(log_stats=True, num_spec_tokens=deepest)
    logging, generated, request = SpecDecodingLogging(), IterationStats(), RequestStateStats()
    counted = 0
    for drafted, accepted, emitted in rounds:
        generated.update_from_output(
            EngineCoreOutput("0", [0] * emitted), 0.0, False, request, lora_states=None, lora_name=None
        )
        if drafted:
            stats = Scheduler.make_spec_decoding_stats(scheduler, None, drafted, accepted, None, "0")
            counted += stats.num_drafts
            logging.observe(stats)
    logged: list[tuple[Any, ...]] = []
    logging.log(lambda text, *values: logged.append(values))
    tokens = int(generated.num_generation_tokens)
    if not logged:
        return Metrics(counted, 0, 0, tokens, None, NOT_SHOWN, None, ())
    length, _, _, accepted, drafted, positions, percent = logged[0]
    by_depth = tuple(float(text) for text in positions.split(", ") if text)
    return Metrics(
        counted, int(drafted), int(accepted), tokens, float(length), NOT_SHOWN, float(percent) / 100, by_depth
    )


def _rounds(case: RoundsCase) -> list[tuple[int, int, int]]:
    vectors = [np.asarray(vector) for vector in (case.drafted, case.accepted, case.emitted)]
    if case.worker is not None:
        vectors.append(np.asarray(case.worker))
    if any(v.ndim != 1 or v.shape != vectors[0].shape or (v.size and v.dtype.kind not in "iu") for v in vectors):
        raise NotApplicable("each step counts one integer of each kind")
    if vectors[0].max(initial=0) > DEEPEST:
        raise NotApplicable(f"no engine drafts more than {DEEPEST} tokens")
    return list(zip(*(v.tolist() for v in vectors[:3])))


class metrics:
    """vLLM's counters and its log."""

    DECLARATION = Declaration(
        name="vllm, metrics",
        version=version(),
        links=(_CODE, _SCHEDULER),
        conventions={"accepted_count": "drafts"},
        cost={"summarise_rounds": 3e-4},
        deviations=(
            Deviation("METRICS-201", "a round without drafts is not counted", witness="off"),
            *(Deviation(f"METRICS-{n}", _LENGTH, link=_CUT) for n in (301, 602, 702)),
            Deviation(
                "METRICS-402",
                _BY_POSITION,
                witness="cut",
                fixtures=("792e62215e64", "296675c57b12", "ca3246580c5e"),
            ),
            Deviation("METRICS-403", _BY_POSITION, witness="unreached", fixtures=("449f43c75ad3", "a4434aa6896c")),
            Deviation(
                "METRICS-502",
                "where nothing was drafted nothing is logged, not even a length",
                witness="off",
                fixtures=("0b3102e6813d",),
            ),
            Deviation(
                "METRICS-503",
                "a position that no round reached has the rate 0",
                witness="refused",
                fixtures=("fe239ed42422", "ba0c5c145dc6", "c66be323e102"),
            ),
            Deviation("METRICS-601", "a round without drafts is not counted", witness="idle"),
            Deviation("METRICS-603", _BY_POSITION, witness="unequal"),
            Deviation("METRICS-902", _UNASKED, link=_CODE),
            Deviation("METRICS-903", _UNASKED, link=_CODE),
            Deviation("METRICS-904", _UNASKED, link=_CODE),
        ),
    )

    summarise_rounds = staticmethod(summarise)
