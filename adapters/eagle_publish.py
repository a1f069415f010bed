"""SafeAILab/EAGLE's publication of a round, for `adapters.eagle:serving` and `adapters.eagle:release`.

The code under test is `eagenerate` of `EaModel` and the `update_inference_inputs` that it calls, of a clone
(`eagle/model/ea_model.py`, `eagle/model/utils.py`, `eagle/model/cnets.py`) or of the package eagle-llm, in greedy
decoding, behind the edges of `adapters.kv_tracers`, which says what is converted.

The loop looks for the tokenizer's end of sequence and, in the clone, with `is_llama3` for one more token; a case with
more stop tokens is not applicable. `max_new_tokens` is that of the case, or more than any case has. In the package, the
leaf table is one of the tree's buffers, and the buffers of a round are put there when its candidates are made.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from adapters.interface import Deviation
from adapters.kv_tracers import PADDING, Loop, deviations, most, rebound, run, stops
from oracle.types import CommittedState, PublishCase

_CLONE = "https://github.com/SafeAILab/EAGLE/blob/cb7e0841fe0c206c6ed74a197ad5e2a1f13f5a2b/eagle/model"
_PACKAGE = "https://github.com/SafeAILab/EAGLE/blob/v1/eagle/model"
_ENDS = f"{_CLONE}/ea_model.py#L290-L299"
DEVIATIONS = deviations(
    _ENDS,
    f"{_CLONE}/utils.py#L465-L468",
    Deviation("PUBLISH-903", "a round that ends is another one, with padding or without", link=_ENDS),
)
DEVIATIONS_STATIC = deviations(f"{_PACKAGE}/ea_model.py", f"{_PACKAGE}/utils.py")


def publish(case: PublishCase, functions: dict[str, Any], drafter: Any) -> CommittedState:
    """A round of the clone's loop. functions: `eagenerate` and what it calls; drafter: one of two children a node."""
    torch = functions["torch"]
    loop = Loop(torch, case, drafter)
    ends = [*stops(case, 2), PADDING, PADDING][:2]
    tokenizer = SimpleNamespace(eos_token_id=ends[0], convert_tokens_to_ids=lambda _: ends[1])

    def tree() -> tuple[Any, ...]:
        return loop.tokens(), loop.leaves(), None, None

    def prefill(ids: Any, *_: Any) -> tuple[Any, ...]:
        loop.prefill()
        return (*tree(), None, None, None)

    decode = rebound(
        functions["EaModel"].eagenerate,
        update_inference_inputs=rebound(functions["update_inference_inputs"], torch=loop.picks()),
        initialize_tree=prefill,
        tree_decoding=lambda model, tokens, cache, positions, ids, leaves: (None, loop.verify(ids), None),
        evaluate_posterior=lambda *_: (*loop.answer(), loop.law()),
    )
    return run(
        loop,
        lambda: decode(
            loop.model(tokenizer, tree),
            torch.tensor([loop.prompt]),
            max_new_tokens=most(case),
            max_length=loop.room,
            is_llama3=ends[1] != PADDING,
        ),
    )


def publish_static(case: PublishCase, module: Any, drafter: Any) -> CommittedState:
    """A round of the package's loop. module: `eagle.model.ea_model`."""
    torch = module.torch
    loop = Loop(torch, case, drafter)
    tokenizer = SimpleNamespace(eos_token_id=[*stops(case, 1), PADDING][0])
    buffers: dict[str, Any] = dict.fromkeys(
        (
            *("tree_attn_mask", "tree_indices", "tree_position_ids", "p_indices", "b_indices"),
            *("retrieve_indices", "retrieve_indices_head"),
        )
    )
    drafted = (None, None, None)

    def prefill(ids: Any, *_: Any) -> tuple[Any, ...]:
        loop.prefill()
        return drafted, None, None, None

    def candidates(*_: Any) -> tuple[Any, ...]:
        buffers["retrieve_indices"] = loop.leaves()
        tokens = torch.cat((loop.tokens(), torch.tensor([[PADDING]])), dim=1)
        return tokens[0, loop.leaves()], None, loop.tokens()

    decode = rebound(
        module.EaModel.eagenerate,
        update_inference_inputs=rebound(module.update_inference_inputs, torch=loop.picks()),
        initialize_tree=prefill,
        generate_candidates=candidates,
        tree_decoding=lambda model, tokens, cache, positions, ids, leaves: (None, loop.verify(ids), None),
        evaluate_posterior=lambda *_: (*loop.answer(), loop.law()),
    )
    model = loop.model(tokenizer, lambda: drafted)
    model.tree_buffers, model.tree_choices = buffers, ()
    return run(
        loop,
        lambda: decode(
            model,
            torch.tensor([loop.prompt]),
            max_new_tokens=most(case),
            max_length=loop.room,
            tree_choices=(),
        ),
    )
