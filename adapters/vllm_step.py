"""Parts of a vLLM engine that publish a round, without the engine: its scheduler, and its EAGLE proposer.

Both are the real classes, made without their constructors: what a step reads is set here. The scheduler has no
connectors, no grammars and no statistics, and what a finished request frees is not followed. The proposer runs eagerly
(a batch is padded by nothing), its draft model is `Drafter`, and the forward context only tells that model its slots.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np


def scheduler(requests: Mapping[str, Any], longest: int) -> Any:
    """A scheduler that runs these requests, in a context of `longest` tokens."""
    from vllm.v1.core.sched.scheduler import Scheduler

    found = Scheduler.__new__(Scheduler)
    vars(found).update(
        requests=dict(requests),
        running=list(requests.values()),
        max_model_len=longest,
        num_sampled_tokens_per_step=1,
        num_prefill_lookahead=0,
        recompute_kv_load_failures=True,
        grammar_compile_error_reqs=set(),
        encoder_cache_mismatch_reqs=set(),
        _inflight_prefills=set(),
        finished_req_ids_dict=None,
        kv_cache_manager=SimpleNamespace(take_events=lambda: None),
        structured_output_manager=SimpleNamespace(accept_tokens=lambda *_: True),
        make_stats=lambda *_, **__: None,
        _free_request=lambda _: (None, None),
        **dict.fromkeys(("perf_metrics", "connector", "ec_connector", "aux_output_connector"), None),
        **dict.fromkeys(("defer_block_free", "return_sampling_mask", "is_mm_encoder_only", "log_stats"), False),
    )
    return found


_OFF = (
    "use_heterogeneous_vocab",
    "needs_extra_input_slots",
    "supports_mm_inputs",
    "uses_mrope",
    "constant_draft_positions",
    "parallel_drafting",
    "use_local_argmax_reduction",
    "_share_mtp_indices",
    "_enable_probabilistic_draft_probs",
)


def proposer(drafter: Drafter | None, rows: int, requests: int, block: int, longest: int) -> Any:
    """A proposer for batches of so many rows and requests, over blocks of `block` slots and `longest` tokens."""
    import torch
    from vllm.v1.spec_decode.eagle import EagleProposer

    found = EagleProposer.__new__(EagleProposer)
    vars(found).update(
        method="eagle",
        device=torch.device("cpu"),
        block_size=block,
        max_model_len=longest,
        arange=torch.arange(rows + 1, dtype=torch.int32),
        token_arange_np=np.arange(rows + 1),
        backup_next_token_ids=_Buffer(requests),
        input_ids=torch.zeros(rows, dtype=torch.int32),
        positions=torch.zeros(rows, dtype=torch.int64),
        hidden_states=torch.zeros((rows, 1), dtype=torch.float64),
        vllm_config=SimpleNamespace(model_config=SimpleNamespace(uses_mrope=False)),
        model=drafter,
        eplb_state=None,
        allowed_attn_types=None,
        pass_hidden_states_to_model=True,
        _slot_mapping_buffer=torch.zeros(rows, dtype=torch.int64),
        _draft_attn_layer_names=["layer"],
        _determine_batch_execution_and_padding=lambda tokens: (None, tokens, None),
        build_per_group_and_layer_attn_metadata=lambda *_, **__: ([], {}),
        **dict.fromkeys(_OFF, False),
    )
    return found


class _Buffer:
    """A buffer that is on both sides at once."""

    def __init__(self, size: int) -> None:
        import torch

        self.gpu = torch.zeros(size, dtype=torch.int32)
        self.np = self.gpu.numpy()

    def copy_to_gpu(self, _: int) -> None:
        pass


class Drafter:
    """A draft model: a row holds the feature that it is made from. What it feeds back is NaN, as are the rows of that.

    seeds: the features that the first drafts are made from.
    """

    def __init__(self, rows: Any) -> None:
        self.seeds: Any = None
        self._rows, self._slots = rows, None

    def __call__(self, hidden_states: Any, **_: Any) -> tuple[Any, Any]:
        self._rows[self._slots] = hidden_states[:, 0]
        return hidden_states.clone(), hidden_states * float("nan")

    def compute_logits(self, hidden_states: Any) -> Any:
        """The same for all tokens, so token 0 is drafted."""
        if self.seeds is None:
            self.seeds = hidden_states[:, 0].clone()
        return hidden_states.new_zeros((len(hidden_states), 2))

    @contextmanager
    def context(self) -> Iterator[None]:
        """While it lasts, a forward learns its slots from the context it runs in."""
        import vllm.v1.spec_decode.llm_base_proposer as module

        @contextmanager
        def told(*_: Any, slot_mapping: Any, **__: Any) -> Iterator[None]:
            self._slots = slot_mapping["layer"]
            yield

        with mock.patch.object(module, "set_forward_context", told):
            yield
