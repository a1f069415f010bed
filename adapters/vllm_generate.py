"""The whole of vLLM on a CPU, drafting with EAGLE or EAGLE-3: `adapters.vllm:eagle`, `adapters.vllm:eagle3`.

The code under test is `vllm.LLM`: scheduler, model runner, proposer, rejection sampler and output processor, in this
process, over the models of `adapters.tiny_models`. A case without speculation runs in an engine without a drafter, one
with speculation in an engine of the case's `draft_length`; an engine starts when it is first asked for, and stays.

- `eagle`, `eagle3`: as they are installed. vLLM's default drafts greedily. Beside any sampled request the CPU build
  divides the target's logits by memory that nobody wrote (vllm-project/vllm#55005): that memory is filled with NaN, so
  that reading it gives the same result every time.
- `eagle_expanded`, `eagle3_expanded`: that step, `expand_batch_to_tokens`, is PyTorch's `repeat_interleave`, and drafts
  are sampled ("probabilistic"), so that what is behind it can be seen at work.

What is converted, and nothing else: a request to `SamplingParams` (temperature, seed, max_tokens, stop_token_ids), and
what comes back to token ids and margins, the difference of the two best raw log probabilities. Requests have no end
token of their own. Where a case has one seed, every request has that seed.

Not applicable: draft lengths that differ between requests, and 0: an engine has one, of at least 1. An engine in which
anything but a request's validation raises is dead; the next case starts another, as one would start the server.

A speculative run in which nothing was drafted would say nothing: it is an `AdapterError`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from adapters import tiny_models, vllm_engine
from adapters.interface import AdapterError, Arithmetic, Declaration, Deviation, Engine, NotApplicable
from adapters.vllm_cases import version
from oracle.types import GenerateCase, Generation

SHAPE = tiny_models.Shape()
DRAFTS = 3
"""Drafts a round where the case does not say."""
MOST_DRAFTS = 8
BATCH = 128
"""Requests that an engine runs at once."""
PAGE = 32
"""Tokens a block of its caches holds, the least that vLLM's attention on a CPU takes."""
HOTTEST = 2.0
"""The highest temperature of `SamplingParams`."""
_BEHIND_TEMPERATURE = tuple(
    Deviation(
        f"DECODE-{n}",
        "beside a sampled request target logits are divided by memory that nobody wrote, those of greedy requests, too",
        link="https://github.com/vllm-project/vllm/issues/55005",
    )
    for n in (504, 702, 703, 704, 803)
)
_SEEDS = tuple(
    Deviation(
        f"DECODE-{n}",
        "sampled drafts are drawn from the global generator, whatever seed a request has",
        link="https://github.com/vllm-project/vllm/issues/15901",
    )
    for n in (801, 803)
)


@dataclass
class Counts:
    """What a speculative engine has done. rounds: of single requests."""

    rounds: int = 0
    drafted: int = 0
    accepted: int = 0


@dataclass
class _Running:
    """An engine, and its counts."""

    llm: Any
    counts: Counts = field(default_factory=Counts)


class _Variant:
    """A namespace with the operation; `--impl=adapters.vllm:<name>`."""

    def __init__(self, method: str, expanded: bool) -> None:
        self._method = method
        self._expanded = expanded
        self.DECLARATION = _declare(method, expanded)

    def generate(self, case: GenerateCase) -> list[Generation]:
        return _generate(self._method, self._expanded, case)

    def counts(self, drafts: int = DRAFTS) -> Counts:
        """What the engine of this draft length has done so far."""
        return _running(self._method, self._expanded, drafts).counts


def _declare(method: str, expanded: bool) -> Declaration:
    drafter = {"eagle": "EAGLE", "eagle3": "EAGLE-3"}[method]
    return Declaration(
        name=f"vllm {drafter}" + (", sampled drafts, temperatures expanded by torch" if expanded else ""),
        version=version(),
        links=(
            "https://github.com/vllm-project/vllm/blob/main/vllm/v1/spec_decode/llm_base_proposer.py",
            "https://github.com/vllm-project/vllm/blob/main/vllm/v1/worker/gpu_model_runner.py",
        ),
        arithmetic=Arithmetic(dtype="float32", via_logits=True, draft_via_logits=True),
        cost={"generate": 2e-3},
        promises=("seed", "request_independent"),
        generators=("torch",),
        deviations=_SEEDS if expanded else _BEHIND_TEMPERATURE,
        engine=Engine(
            vocabulary=SHAPE.vocabulary,
            longest=SHAPE.longest,
            draft_length=DRAFTS,
            roundings=tiny_models.roundings(SHAPE),
            scale=tiny_models.scale(SHAPE),
            hottest=HOTTEST,
        ),
    )


def _generate(method: str, expanded: bool, case: GenerateCase) -> list[Generation]:
    """One call of `LLM.generate`."""
    number = len(case.prompts)
    if not number:
        return []
    limits, temperatures, seeds = (
        np.broadcast_to(np.asarray(value), number) for value in (case.max_new_tokens, case.temperature, case.seed)
    )
    key = (method, expanded, _drafts(case)) if case.speculative else ("", False, 0)
    running = _running(*key)
    from vllm import SamplingParams

    parameters = [
        SamplingParams(
            temperature=float(temperature),
            seed=int(seed),
            max_tokens=int(limit),
            stop_token_ids=[int(token) for token in case.stop_tokens],
            ignore_eos=True,
            detokenize=False,
            logprobs=2,
        )
        for temperature, seed, limit in zip(temperatures, seeds, limits, strict=True)
    ]
    prompts = [{"prompt_token_ids": np.asarray(prompt).tolist()} for prompt in case.prompts]
    before = running.counts.drafted
    try:
        outputs = running.llm.generate(prompts, parameters, use_tqdm=False)
    except ValueError:
        raise
    except Exception:
        _RUNNING.pop(key, None)
        raise
    generations = [_generation(output.outputs[0]) for output in outputs]
    # The first token comes with the prompt, and a round follows wherever there are two more.
    if case.speculative and running.counts.drafted == before and any(len(g.tokens) > 2 for g in generations):
        raise AdapterError(f"vLLM ran {method} and verified no draft")
    return generations


def _generation(completion: Any) -> Generation:
    margins = []
    for row in completion.logprobs:
        best = sorted((entry.logprob for entry in row.values()), reverse=True)
        margins.append(best[0] - best[1])
    return Generation(np.array(completion.token_ids, dtype=np.int64), np.array(margins, dtype=np.float64))


def _drafts(case: GenerateCase) -> int:
    """Drafts a round, at least 1."""
    if case.draft_length is None:
        return DRAFTS
    lengths = np.unique(np.asarray(case.draft_length))
    if len(lengths) != 1 or not 1 <= lengths[0] <= MOST_DRAFTS:
        raise NotApplicable(f"an engine drafts one number of tokens a round, here 1 to {MOST_DRAFTS}")
    return int(lengths[0])


_RUNNING: dict[tuple[str, bool, int], _Running] = {}


def _running(method: str, expanded: bool, drafts: int) -> _Running:
    """The engine with this many drafts a round; with 0 the one without a drafter, which all variants share."""
    key = method, expanded, drafts
    if key not in _RUNNING:
        _RUNNING[key] = _start(*key)
    return _RUNNING[key]


def _start(method: str, expanded: bool, drafts: int) -> _Running:
    for name, value in (
        ("TORCHDYNAMO_DISABLE", "1"),
        ("VLLM_ENABLE_V1_MULTIPROCESSING", "0"),
        ("VLLM_CPU_KVCACHE_SPACE", "1"),
        ("VLLM_CPU_OMP_THREADS_BIND", "nobind"),
    ):
        os.environ.setdefault(name, value)
    sampler = vllm_engine.engine("cpp").module
    from vllm import LLM

    speculation = None
    if drafts:
        folder = {"eagle": tiny_models.eagle_folder, "eagle3": tiny_models.eagle3_folder}[method](SHAPE)
        speculation = {
            "method": method,
            "model": str(folder),
            "num_speculative_tokens": drafts,
            "draft_sample_method": "probabilistic" if expanded else "greedy",
        }
    llm = LLM(
        model=str(tiny_models.target_folder(SHAPE)),
        dtype="float32",
        enforce_eager=True,
        max_model_len=SHAPE.longest,
        max_num_seqs=BATCH,
        block_size=PAGE,
        num_gpu_blocks_override=BATCH * SHAPE.longest // PAGE + 1,
        use_tqdm_on_load=False,
        seed=0,
        speculative_config=speculation,
    )
    running = _Running(llm)
    if drafts:
        _watch(llm, running.counts)
        if expanded:
            sampler.expand_batch_to_tokens = _expand
        else:
            _fill_unwritten(sampler)
    return running


def _expand(x: Any, cumulated: Any, count: int, replace_from: int = 0, replace_to: int = 0) -> Any:
    """`expand_batch_to_tokens` as its docstring says it."""
    import torch

    lengths = torch.diff(cumulated, prepend=cumulated.new_zeros(1)).long()
    return torch.where(x == replace_from, replace_to, x).to(x.dtype).repeat_interleave(lengths)


def _fill_unwritten(sampler: Any) -> None:
    """From now on, memory that `apply_sampling_constraints` does not write is NaN."""
    real: Callable[..., Any] = sampler.apply_sampling_constraints
    if getattr(real, "filled", False):
        return

    def constrained(*arguments: Any) -> Any:
        with vllm_engine.without_luck():
            return real(*arguments)

    constrained.filled = True  # type: ignore[attr-defined]
    sampler.apply_sampling_constraints = constrained


def _watch(llm: Any, counts: Counts) -> None:
    """Count what the engine's rejection sampler is given and what it lets through."""
    runner = llm.llm_engine.model_executor.driver_worker.worker.model_runner
    real: Callable[..., Any] = runner.rejection_sampler.forward

    def forward(metadata: Any, *arguments: Any, **named: Any) -> Any:
        output = real(metadata, *arguments, **named)
        drafts: Sequence[int] = metadata.num_draft_tokens
        emitted = (output.sampled_token_ids >= 0).sum(dim=1).tolist()
        for drafted, tokens in zip(drafts, emitted, strict=True):
            if drafted:
                counts.rounds += 1
                counts.drafted += drafted
                counts.accepted += tokens - 1
        return output

    runner.rejection_sampler.forward = forward


eagle = _Variant("eagle", expanded=False)
eagle3 = _Variant("eagle3", expanded=False)
eagle_expanded = _Variant("eagle", expanded=True)
eagle3_expanded = _Variant("eagle3", expanded=True)
