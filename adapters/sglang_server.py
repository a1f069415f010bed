"""The parts of SGLang's server that publish a round, without the server: a pool, a result processor, settings.

What runs is the engine's own `MHATokenToKVPool.move_kv_cache`, `SchedulerBatchResultProcessor`, `Req` and
`release_kv_cache`. Set, beside what `adapters/sglang_engine.py` sets:
- the server's settings are those of a plain EAGLE server: no Mamba, no disaggregation, no offloading, no metrics;
- `ForwardBatch.init_new` hands the batch on, and `assign_extend_cache_locs_uniform_func` takes its way on a GPU;
- a request counts no times and is no diffusion model's.
"""

from __future__ import annotations

import functools
import importlib
from types import SimpleNamespace
from typing import Any

from adapters.sglang_engine import engine


class Deaf:
    """Takes any call, and does nothing; has what it is given."""

    def __init__(self, **given: Any) -> None:
        vars(self).update(given)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


@functools.cache
def code() -> Any:
    """The engine, with the parts of a server that a round only mentions."""
    e = engine()
    e.on_gpu = type("OnGpu", (e.torch.Tensor,), {"is_cuda": property(lambda _: True)})
    off = SimpleNamespace(
        enable_mamba_extra_buffer=False,
        enable_mamba_extra_buffer_lazy=False,
        disaggregation_decode_enable_offload_kvcache=False,
        enable_hisparse=False,
        enable_metrics=False,
        strip_thinking_cache=False,
        speculative_algorithm="EAGLE",
    )
    config = SimpleNamespace(mamba=off, **vars(off))
    for module, names in (
        (e.processor, ("get_exec", "get_disagg", "get_memory", "get_observability")),
        (e.requests, ("get_serving",)),
        (e.release, ("get_serving", "get_spec")),
    ):
        for name in names:
            setattr(module, name, lambda: config)
    e.requests.SchedulerReqTimeStats = lambda **_: Deaf()
    e.requests.Req.init_diffusion_llm = lambda *_: None
    e.processor.get_global_experts_capturer = e.processor.get_global_indexer_capturer = lambda: None
    mode = SimpleNamespace(is_idle=lambda: False, is_decode=lambda: True)
    e.modes_of_forward = SimpleNamespace(IDLE=None, TARGET_VERIFY=mode, DRAFT_EXTEND_V2=mode, DECODE=mode)
    captured = SimpleNamespace(NULL=None, FULL=None)
    forward = SimpleNamespace(init_new=_forward_batch)
    locations: Any = importlib.import_module("sglang.kernels.ops.speculative.cache_locs")
    locations._is_cuda = True
    e.utils._PREPARE_FOR_VERIFY_DEPS = (
        locations.assign_extend_cache_locs_uniform_func,
        captured,
        forward,
        e.modes_of_forward,
        e.spec.prepare_mamba_track_for_verify,
    )
    e.spec.get_exec = lambda: config
    e.common.ForwardBatch, e.common.ForwardMode, e.common.CaptureHiddenMode = forward, e.modes_of_forward, captured
    return e


def _forward_batch(batch: Any, *_: Any, **__: Any) -> Any:
    return SimpleNamespace(
        batch=batch,
        seq_lens=batch.seq_lens,
        seq_lens_cpu=batch.seq_lens_cpu,
        mark_forward_metadata_ready=lambda: None,
    )


def buffer(slots: int) -> Any:
    """Keys, values or a drafter's rows of one layer, one number a slot; slot 0 is nobody's, and free slots hold NaN."""
    return code().torch.full((1 + slots, 1, 1), float("nan"), dtype=code().torch.float64)


def pool(slots: int) -> Any:
    """A pool of one layer with the engine's own moves."""
    real = code().memory.MHATokenToKVPool
    found = SimpleNamespace(
        layer_num=1,
        size=slots,
        page_size=1,
        use_hnd=False,
        use_native_move_kv_cache=True,
        k_buffer=[buffer(slots)],
        v_buffer=[buffer(slots)],
        _move_native_fp4_scales=lambda *_: None,
    )
    found._move_kv_cache_impl = functools.partial(real._move_kv_cache_impl, found)
    found.move_kv_cache = functools.partial(real.move_kv_cache, found)
    return found


def tree_cache(table: Any) -> Any:
    """Takes what a finished request releases; how much of it the request owned, the request itself says."""
    return Deaf(supports_mamba=lambda: False, req_to_token_pool=table, token_to_kv_pool_allocator=Deaf(page_size=1))


def processor(allocator: Any, cache: Any) -> Any:
    """The scheduler's processor of results, in a server that overlaps rounds."""
    real = code().processor.SchedulerBatchResultProcessor
    given = dict.fromkeys(real.__dataclass_fields__, Deaf())
    return real(
        **given
        | {
            "enable_overlap": True,
            "enable_overlap_mlx": False,
            "token_to_kv_pool_allocator": allocator,
            "tree_cache": cache,
            "metrics_reporter": Deaf(num_generated_tokens=0, forward_ct_decode=0),
            "model_config": SimpleNamespace(self_opened_think_start_ids=None, think_end_ids=None),
        }
    )
