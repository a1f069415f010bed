"""AngelSlim's publication of a round, for `adapters.angelslim:serving`.

The code under test is `eagle_generate` of `Eagle3Model`, its `GenerationManager`, and the `update_inference_inputs`
that it calls, of `angelslim.compressor.speculative`, in greedy decoding without early stop of thoughts, behind the
edges of `adapters.kv_tracers`, which says what is converted. The verifier answers with the frontier itself.

The manager looks for the tokenizer's end of sequence and, with `is_llama3`, for one more token; a case with more stop
tokens is not applicable. `max_new_tokens` is that of the case, or more than any case has.
"""

from __future__ import annotations

import importlib
from functools import cache
from types import SimpleNamespace
from typing import Any

from adapters import angelslim_engine
from adapters import clone_features as shared
from adapters.interface import Deviation
from adapters.kv_tracers import PADDING, SMALL, Loop, deviations, most, rebound, run, stops
from oracle.types import CommittedState, PublishCase

_CODE = "https://github.com/Tencent/AngelSlim/blob/v0.5.0/angelslim/compressor/speculative"
_ENDS = f"{_CODE}/inference/models/eagle3/eagle3_model.py#L206-L228"
DEVIATIONS = deviations(
    _ENDS,
    f"{_CODE}/utils/util.py#L322-L329",
    Deviation("PUBLISH-903", "a round that ends is another one, with padding or without", link=_ENDS),
)


def publish(case: PublishCase) -> CommittedState:
    """A round of the request."""
    module, torch = _module(), angelslim_engine.angelslim().torch
    loop = Loop(torch, case, _drafter(), more=(None,))
    ends = [*stops(case, 2), PADDING, PADDING][:2]
    tokenizer = SimpleNamespace(eos_token_id=ends[0], stop_think_id=PADDING, convert_tokens_to_ids=lambda _: ends[1])

    def tree() -> tuple[Any, ...]:
        return loop.tokens(), loop.leaves(), None, torch.zeros(1), None

    def prefill(*_: Any) -> tuple[Any, ...]:
        loop.prefill()
        return (*tree(), None, None)

    decode = rebound(
        module.Eagle3Model.eagle_generate,
        initialize_tree=prefill,
        tree_decoding=lambda model, tokens, cache, positions, ids, leaves: (None, loop.verify(ids), None),
        evaluate_posterior=lambda *_: (*loop.answer(), loop.law().reshape(1, 1)),
    )
    model = loop.model(tokenizer, tree)
    model.generation_manager = module.GenerationManager(tokenizer)
    model.early_stop_method = None
    return run(
        loop,
        lambda: decode(
            model,
            torch.tensor([loop.prompt]),
            max_new_tokens=most(case),
            max_length=loop.room,
            is_llama3=ends[1] != PADDING,
        ),
    )


@cache
def _module() -> Any:
    """The module of the loop."""
    angelslim_engine.angelslim()
    return importlib.import_module("angelslim.compressor.speculative.inference.models.eagle3.eagle3_model")


@cache
def _drafter() -> Any:
    """A drafter of two children a node."""
    package = angelslim_engine.angelslim()
    config = shared.tiny_config(SMALL, SMALL, draft_vocab_size=SMALL)
    with package.torch.random.fork_rng(devices=[]):
        model = package.drafter.Llama3Eagle3Drafter(config, total_tokens=3, depth=1, top_k=2)
    model.init_tree()
    return model
