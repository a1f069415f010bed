"""SGLang's Llama drafters on given weights, prefix and rollout through their forward: `adapters.sglang:drafter`.

The code under test is `LlamaForCausalLMEagle` and `LlamaForCausalLMEagle3` with the layers that they are made of, on a
CPU: filled by their own `load_weights`, and called as the EAGLE worker calls its draft model, first to extend (the
prefix), then to decode, a token at a time. `TorchNativeAttnBackend` attends, over real pools of requests, keys and
values. `LogitsProcessor` hands out the last row's logits and the state that is fed back. The worker is not run: which
token and position a rollout row gets is this module's doing. Everything is float32.

Of the engine's own modules the samplers and the grammars stand aside, as do packages that draft models do not need; so
does the kernel package, whose Intel kernels are told to be missing.

What is converted, and nothing else:
- EAGLE-1's head is the target's rows of the draft's tokens, set where the worker shares them (a token map makes a head
  of fewer rows than the vocabulary).
- EAGLE-3's embedding is loaded from the checkpoint, where the worker sets the target's.
- EAGLE-3's `bias` gives the fusion and `o_proj` one each, and `attention_bias` `o_proj` alone: where a case has but one
  of the two, the other is zeros.
- memory that nobody wrote is filled with NaN, so that a weight which is not loaded gives the same result every time.

Not applicable: EAGLE-3 with the pair projected; weights without an embedding or a head, which would be the target's;
EAGLE-1 without a bias of the fusion, whose layer has one always, and would keep the random numbers that it began with;
other biases than those.
"""

from __future__ import annotations

import importlib.metadata
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

from adapters import sglang_engine
from adapters.interface import AdapterError, Arithmetic, Declaration, Deviation, NotApplicable
from oracle.types import DrafterCase, DraftRollout

LEAST_LENGTH = 64
"""Positions that a model has at least."""
_CODE = "https://github.com/sgl-project/sglang/blob/main/python/sglang/srt"
_ASIDE = (
    "compressed_tensors",
    "gguf",
    "loguru",
    "sentencepiece",
    "sgl_kernel",
    "torchvision",
    "tvm_ffi",
    "sglang.srt.constrained.base_grammar_backend",
    "sglang.srt.layers.sampler",
)
"""Packages and modules in whose place stand-ins are imported."""
FUSED = "fc.bias"
OUTPUT = "midlayer.self_attn.o_proj.bias"


def draft_logits(case: DrafterCase) -> DraftRollout:
    """Logits and states of the prefix's last row and of each rollout token."""
    _applicable(case)
    s = _sglang()
    torch = s.torch
    rows, steps = len(case.tokens), len(case.rollout_tokens)
    length = max(rows + steps, int(np.max(case.positions)) + steps + 1, LEAST_LENGTH)
    drafter = _Drafter(_model(case, length), rows + steps)
    tokens, positions = (torch.from_numpy(np.array(values, dtype=np.int64)) for values in (case.tokens, case.positions))
    states = torch.tensor(np.array(case.features), dtype=torch.float32)
    found = []
    with torch.inference_mode():
        for token in [None, *case.rollout_tokens.tolist()]:
            if token is not None:
                tokens, positions = torch.tensor([token]), positions[-1:] + 1
            made = drafter.forward(tokens, positions, states, decode=token is not None)
            states = made.hidden_states.clone()
            found.append((made.next_token_logits[0].double().numpy(), states[0].double().numpy()))
    return DraftRollout(*(np.stack(part) for part in zip(*found)))


def _applicable(case: DrafterCase) -> None:
    if case.variant not in ("eagle1", "eagle3"):
        raise NotApplicable("its Llama drafters are EAGLE-1 and EAGLE-3 that attends from the normed pair")
    for name in ("embed_tokens", "lm_head"):
        if f"{name}.weight" not in case.weights:
            raise NotApplicable(f"without {name} it takes the target's, and there is no target")
    if case.variant == "eagle1" and FUSED not in case.weights:
        raise NotApplicable(
            "EAGLE-1's fusion always has a bias, of random numbers where the checkpoint has none: "
            "https://github.com/sgl-project/sglang/issues/5773"
        )
    known = (FUSED,) if case.variant == "eagle1" else (FUSED, OUTPUT)
    if others := [name for name in case.weights if name.endswith(".bias") and name not in known]:
        raise NotApplicable(f"it has no {', '.join(others)}")


@cache
def _sglang() -> SimpleNamespace:
    """SGLang in this process: a server's configuration on a CPU, and a group of one worker."""
    os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")
    try:
        import torch
        from transformers import AutoProcessor, LlamaConfig  # noqa: F401 - it looks for packages that are set aside

        with _aside(torch):
            from sglang.srt import runtime_context
            from sglang.srt.distributed import parallel_state
            from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
            from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, ReqToTokenPool
            from sglang.srt.model_executor import forward_context, runner  # noqa: F401 - the cache asks for a runner
            from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch, ForwardMode
            from sglang.srt.models import llama_eagle, llama_eagle3
            from sglang.srt.server_args import ServerArgs
            from sglang.srt.speculative.eagle_info import EagleDraftInput

            torch.set_num_threads(1)
            arguments = ServerArgs(model_path="dummy", device="cpu", attention_backend="torch_native")
            ranks = runtime_context.SpawnRanks(world_rank=0, gpu_id=0)
            runtime_context.publish(arguments, role="scheduler", ranks=ranks)
            store = torch.distributed.HashStore()  # type: ignore[attr-defined]
            torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
            parallel_state.init_distributed_environment(1, 0, "env://", 0, "gloo")
            parallel_state.initialize_model_parallel(backend="gloo")
    except ImportError as error:
        raise AdapterError(sglang_engine.MISSING.format(error)) from error
    return SimpleNamespace(
        torch=torch,
        Config=LlamaConfig,
        models={"eagle1": llama_eagle.LlamaForCausalLMEagle, "eagle3": llama_eagle3.LlamaForCausalLMEagle3},
        Attention=TorchNativeAttnBackend,
        Cache=MHATokenToKVPool,
        Requests=ReqToTokenPool,
        context=forward_context,
        Batch=ForwardBatch,
        Mode=ForwardMode,
        last=CaptureHiddenMode.LAST,
        Draft=EagleDraftInput,
    )


@contextmanager
def _aside(torch: Any) -> Iterator[None]:
    """While it lasts, stand-ins are imported in the place of what is set aside."""
    with (
        sglang_engine.stand_ins(lambda name: name in _ASIDE or name.partition(".")[0] in _ASIDE),
        mock.patch.object(torch.cpu, "_is_amx_tile_supported", lambda: False),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield


def _model(case: DrafterCase, length: int) -> Any:
    """The model with the weights of the case."""
    s = _sglang()
    torch = s.torch
    weights = {name: torch.tensor(np.array(values)).float() for name, values in case.weights.items()}
    vocabulary, head = len(weights["embed_tokens.weight"]), weights["lm_head.weight"]
    settings = {name: value for name, value in case.config.items() if name != "fusion_order"}
    if case.variant == "eagle3":
        settings |= {"draft_vocab_size": len(head), "bias": FUSED in weights, "attention_bias": OUTPUT in weights}
        if FUSED in weights:
            weights.setdefault(OUTPUT, torch.zeros(len(weights[FUSED])))
    config = s.Config(
        **settings,
        vocab_size=vocabulary,
        num_hidden_layers=1,
        max_position_embeddings=length,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]), _written(torch):
        torch.manual_seed(0)
        model = s.models[case.variant](config)
    if "d2t" in weights:
        weights["d2t"] = weights["d2t"].long()
    model.load_weights(weights.items())
    if case.variant == "eagle1":
        model.lm_head.weight = torch.nn.Parameter(head)
    return model


@contextmanager
def _written(torch: Any) -> Iterator[None]:
    """While it lasts, torch fills memory that nobody has written with NaN."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


class _Drafter:
    """A model, and the rows that it has seen, of one request."""

    def __init__(self, model: Any, rows: int) -> None:
        s = _sglang()
        self.model, self._seen = model, 0
        (layer,) = model.model.layers
        attention = layer.self_attn.attn
        requests = s.Requests(1, rows, "cpu", False)
        requests.req_to_token[1] = s.torch.arange(1, rows + 1)
        cache = s.Cache(
            rows, 1, s.torch.float32, attention.tp_k_head_num, attention.head_dim, 1, "cpu", enable_memory_saver=False
        )
        self._attention = s.Attention(SimpleNamespace(device="cpu", req_to_token_pool=requests, token_to_kv_pool=cache))

    def forward(self, tokens: Any, positions: Any, states: Any, decode: bool) -> Any:
        """The output of rows that follow those before: logits and state of the last."""
        s = _sglang()
        rows, seen = len(tokens), self._seen + len(tokens)
        counted = s.torch.tensor([rows])
        batch = s.Batch(
            forward_mode=s.Mode.DECODE if decode else s.Mode.EXTEND,
            batch_size=1,
            input_ids=tokens,
            req_pool_indices=s.torch.tensor([1]),
            seq_lens=s.torch.tensor([seen]),
            out_cache_loc=s.torch.arange(self._seen + 1, seen + 1),
            seq_lens_sum=seen,
            positions=positions,
            spec_info=s.Draft(hidden_states=states),
            capture_hidden_mode=s.last,
            extend_seq_lens=None if decode else counted,
            extend_prefix_lens=None if decode else s.torch.zeros_like(counted),
        )
        self._attention.init_forward_metadata(batch)
        with s.context.forward_context(s.context.ForwardContext(attn_backend=self._attention)):
            made = self.model.forward(tokens, positions, batch)
        self._seen = seen
        return made


def _version() -> str:
    try:
        return importlib.metadata.version("sglang")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


class drafter:
    """SGLang's Llama drafters."""

    DECLARATION = Declaration(
        name="sglang drafters",
        version=_version(),
        links=(f"{_CODE}/models/llama_eagle.py", f"{_CODE}/models/llama_eagle3.py"),
        conventions={"fusion_order": "embedding_first"},
        arithmetic=Arithmetic(dtype="float32"),
        cost={"draft_logits": 3e-2},
        deviations=(
            Deviation(
                "DRAFTER-1001",
                "load_weights counts nothing: a weight that is missing keeps what the model began with; of o_proj and "
                "down_proj, where they are too wide, the first columns are taken",
                link=f"{_CODE}/models/llama_eagle3.py",
            ),
            Deviation(
                "DRAFTER-1002",
                "features as wide as the drafter are taken for states that are fed back, and skip the fusion",
                link="https://github.com/sgl-project/sglang/issues/21272",
            ),
            Deviation(
                "DRAFTER-1003",
                "the table of embeddings is padded with zeros to a multiple of 64 rows, and these are embeddings, too",
                link=f"{_CODE}/layers/vocab_parallel_embedding.py",
            ),
        ),
    )

    draft_logits = staticmethod(draft_logits)
