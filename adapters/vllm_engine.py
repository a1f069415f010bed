"""Starting vLLM's rejection sampler on a CPU, once a process, with one kind of kernels.

"cpp": the CPU build's own kernels. "triton": the kernels that run on GPUs, executed by Triton's interpreter,
which needs a stand-in backend before vLLM is imported. The two exclude each other in one process.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from adapters import vllm_interpreter
from adapters.interface import AdapterError


class Engine:
    """The sampler of one process, and how its last step is reached."""

    kind: str | None = None
    """"cpp" or "triton", once the first call has decided."""
    module: Any = None
    sampler: Any = None


def engine(kind: str) -> Engine:
    """Import vLLM the first time; `AdapterError` where the process runs the other kind."""
    if Engine.kind is None:
        _start(kind)
    elif Engine.kind != kind:
        raise AdapterError(f"this process runs vLLM's {Engine.kind} kernels, not the {kind} ones: use another process")
    return Engine()


def _start(kind: str) -> None:
    for key, value in (
        ("OMP_NUM_THREADS", "1"),
        ("VLLM_LOGGING_LEVEL", "ERROR"),
        ("VLLM_LOGGING_STREAM", "ext://sys.stderr"),
        ("VLLM_NO_USAGE_STATS", "1"),
        ("HF_HUB_OFFLINE", "1"),
        ("TRANSFORMERS_OFFLINE", "1"),
    ):
        os.environ.setdefault(key, value)
    if kind == "triton" and "vllm" in sys.modules:
        raise AdapterError("vLLM was imported before its Triton kernels could be set up: use a fresh process")
    try:
        with _quiet():
            if kind == "triton":
                vllm_interpreter.start()
            import torch
            import vllm.v1.sample.rejection_sampler as module
            from vllm.platforms import current_platform
            from vllm.triton_utils import HAS_TRITON
            from vllm.v1.sample.sampler import Sampler

            torch.set_num_threads(1)
            current_platform.import_kernels()
            if kind == "cpp":
                current_platform.register_triton_kernel_overrides()
            if (kind == "triton") != HAS_TRITON:
                raise AdapterError(f"vLLM says HAS_TRITON={HAS_TRITON}, so its {kind} kernels cannot be run")
    except ImportError as error:
        raise AdapterError(
            f"adapters.vllm needs `pip install -r adapters/requirements/vllm.txt`, see its comments ({error})"
        ) from error
    Engine.kind, Engine.module, Engine.sampler = kind, module, module.RejectionSampler(Sampler())


@contextmanager
def _quiet() -> Iterator[None]:
    """No warnings while vLLM is imported: it warns about the build it is, not about the calls that follow."""
    disabled = logging.root.manager.disable
    logging.disable(max(disabled, logging.WARNING))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def sampling_metadata(torch: Any, drafts: Sequence[list[int]], generators: dict[int, Any], greedy: bool) -> Any:
    """Temperature 1 or greedy, no other sampling parameter, as the runner's input batch makes it."""
    from vllm.v1.sample.logits_processor import LogitsProcessors
    from vllm.v1.sample.metadata import SamplingMetadata

    none = torch.empty(0)
    return SamplingMetadata(
        temperature=None if greedy else torch.ones(len(drafts)),
        all_greedy=greedy,
        all_random=not greedy,
        top_p=None,
        top_k=None,
        generators=generators,
        max_num_logprobs=None,
        no_penalties=True,
        prompt_token_ids=None,
        frequency_penalties=none,
        presence_penalties=none,
        repetition_penalties=none,
        output_token_ids=[[] for _ in drafts],
        allowed_token_ids_mask=None,
        bad_words_token_ids={},
        logitsprocs=LogitsProcessors(),
        spec_token_ids=list(drafts),
    )


@contextmanager
def injected(module: Any, accept: Sequence[np.ndarray] | None) -> Iterator[None]:
    """While it lasts, vLLM's accept coins are the ones given, if any."""
    if accept is None:
        yield
        return
    import torch

    original = module.generate_uniform_probs
    coins = torch.from_numpy(np.concatenate([*accept, np.empty(0)]).astype(np.float64))
    module.generate_uniform_probs = lambda *args, **kwargs: coins.clone()
    try:
        yield
    finally:
        module.generate_uniform_probs = original


@contextmanager
def without_luck() -> Iterator[None]:
    """While it lasts, torch fills memory that nobody has written with NaN, or with the largest integer."""
    import torch

    was, warn_only = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    filled = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = filled  # type: ignore[attr-defined]
        torch.use_deterministic_algorithms(was, warn_only=warn_only)
