"""Assisted generation of Hugging Face transformers, over the tiny models of `adapters.tiny_models`.

The code under test is `GenerationMixin.generate`, with and without `assistant_model`. It decodes one request at a time
where an assistant drafts, so requests run one after the other, plain ones too. The assistant is the target's first
layer between its embedding and its head.

What is converted, and nothing else: temperature 0 is do_sample=False; stop tokens are `eos_token_id`; the drafts of a
round are the assistant's `num_assistant_tokens`, with the schedule "constant" and without a confidence threshold, so
that a round has as many as the case says. top_k, whose default is 50, is off. Before each request `torch.manual_seed`
gets its seed. Margins are those of `logits`.

A speculative run in which nothing was drafted would say nothing: it is an `AdapterError`.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from adapters import tiny_models
from adapters.interface import AdapterError, Engine
from oracle.types import GenerateCase, Generation

SHAPE = tiny_models.Shape()
DRAFTS = 3
"""Drafts a round where the case does not say."""
ENGINE = Engine(
    vocabulary=SHAPE.vocabulary,
    longest=SHAPE.longest,
    draft_length=DRAFTS,
    roundings=tiny_models.roundings(SHAPE),
    scale=tiny_models.scale(SHAPE),
)


@dataclass
class _Models:
    torch: Any
    target: Any
    assistant: Any
    drafted: int = 0


def generate(case: GenerateCase) -> list[Generation]:
    """Each request by a call of `generate`."""
    number = len(case.prompts)
    limits, temperatures, seeds, drafts = (
        np.broadcast_to(np.asarray(value), number)
        for value in (
            case.max_new_tokens,
            case.temperature,
            case.seed,
            DRAFTS if case.draft_length is None else case.draft_length,
        )
    )
    models = _models()
    before = models.drafted
    generations = [
        _one(models, case, i, int(limits[i]), float(temperatures[i]), int(seeds[i]), int(drafts[i]))
        for i in range(number)
    ]
    # A last token is never drafted for, so there is a round with drafts only where there are two tokens.
    expected = any(k and len(g.tokens) > 1 for k, g in zip(drafts.tolist(), generations, strict=True))
    if case.speculative and expected and models.drafted == before:
        raise AdapterError("the assistant drafted nothing")
    return generations


def _one(
    models: _Models, case: GenerateCase, i: int, limit: int, temperature: float, seed: int, drafts: int
) -> Generation:
    torch = models.torch
    prompt = torch.from_numpy(np.array(case.prompts[i], dtype=np.int64))[None]
    more: dict[str, Any] = {"do_sample": False}
    if temperature != 0:
        more = {"do_sample": True, "temperature": temperature, "top_k": 0}
    if case.stop_tokens:
        more["eos_token_id"] = [int(token) for token in case.stop_tokens]
    if case.speculative:
        models.assistant.generation_config.num_assistant_tokens = drafts
        more["assistant_model"] = models.assistant
    torch.manual_seed(seed)
    output = models.target.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=limit,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_logits=True,
        **more,
    )
    rows = torch.cat(list(output.logits)).topk(2).values.double().numpy()
    tokens = output.sequences[0, prompt.shape[1] :].numpy()
    return Generation(tokens, rows[:, 0] - rows[:, 1])


@cache
def _models() -> _Models:
    try:
        import torch
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging
    except ImportError as error:
        raise AdapterError(
            f"adapters.transformers needs `pip install -r adapters/requirements/transformers.txt` ({error})"
        ) from error
    logging.set_verbosity_error()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        target, assistant = (
            AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32).eval()
            for folder in (tiny_models.target_folder(SHAPE), tiny_models.assistant_folder(SHAPE))
        )
    assistant.generation_config.num_assistant_tokens_schedule = "constant"
    assistant.generation_config.assistant_confidence_threshold = 0.0
    models = _Models(torch, target, assistant)
    real = assistant.generate

    def drafting(input_ids: Any, **named: Any) -> Any:
        output = real(input_ids, **named)
        models.drafted += output.sequences.shape[1] - input_ids.shape[1]
        return output

    assistant.generate = drafting
    return models
