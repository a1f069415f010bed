"""vLLM's Llama drafters on given weights, prefix and rollout through their forward: `adapters.vllm:drafter`.

The code under test is `EagleLlamaForCausalLM` and `Eagle3LlamaForCausalLM`, made from a `VllmConfig` of a target and
a speculative model of the case's configuration, and filled by their own `load_weights`; `combine_hidden_states`,
`forward` and `compute_logits` are called as `SpecDecodeBaseProposer.propose` calls them, on states in a buffer of the
drafter's width. The proposer itself is not run: it picks its tokens, and counts rows and positions by one number. So
which token, state and position a rollout row gets is this module's doing; DRAFTER-901 to 905 judge what the models make
of it. Everything is float32, in eager mode.

Attention, by the width of a head:

- where `CPUAttentionBackend` takes it (32, 64, 80 …), it is run, with its metadata builder, its C++ kernel and
  a paged cache of keys and values in a forward context.
- other widths it has no kernel for. There torch's `scaled_dot_product_attention` stands in its place: causal, over the
  queries, keys and values that vLLM's layer hands over, by the scale that the layer gave to its backend. The rows that
  are seen, the groups of heads and the product with the scale are torch's then; all else is vLLM's.

What is converted, and nothing else:
- biases of attention and of the feed-forward part come all or none, by a setting each: those that a case has not are
  zeros. Fusion and head have none.
- EAGLE-1's checkpoint has no head, and drafts with the target's: a `ParallelLMHead`, loaded by its own loader, is set
  where the proposer would share it. The logits of tokens that the case's head has no row for are left out.
- EAGLE-3's logits come by the target's ids: they are read where the map that the model loaded puts the draft's.
- memory that nobody wrote is filled with NaN, so that a weight which is not loaded gives the same result every time.

Not applicable: EAGLE-3 with the pair projected; weights without an embedding or a head, which would be the target's.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from adapters import vllm_engine
from adapters.interface import Arithmetic, Declaration, Deviation, NotApplicable
from adapters.vllm_cases import version
from oracle.types import DrafterCase, DraftRollout

PAGE = 32
"""Tokens a block of the cache holds, the least that vLLM's attention on a CPU takes."""
LEAST_LENGTH = 64
"""Positions that a model has at least."""
BIASES = {
    "attention_bias": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
    "mlp_bias": ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
}
"""Setting → the maps that it gives a bias."""
METHODS = {"eagle1": "eagle", "eagle3": "eagle3"}
_CODE = "https://github.com/vllm-project/vllm/blob/main/vllm"


def draft_logits(case: DrafterCase) -> DraftRollout:
    """Logits and states of the prefix's last row and of each rollout token."""
    weights, settings = _read(case)
    torch = _vllm().torch
    rows, steps, hidden = len(case.tokens), len(case.rollout_tokens), settings["hidden_size"]
    length = max(rows + steps, int(np.max(case.positions)) + steps + 1, LEAST_LENGTH)
    tokens, positions = (torch.from_numpy(np.array(values, dtype=np.int64)) for values in (case.tokens, case.positions))
    states = torch.tensor(np.array(case.features), dtype=torch.float32)
    found: list[tuple[np.ndarray, np.ndarray]] = []
    with torch.inference_mode(), _drafter(case, weights, {**settings, "max_position_embeddings": length}) as drafter:
        if case.variant == "eagle3":
            states = drafter.model.combine_hidden_states(states)
        for token in [None, *case.rollout_tokens.tolist()]:
            if token is not None:
                tokens, positions = torch.tensor([token]), positions[-1:] + 1
            # as the proposer does it, which so refuses features of another width; a layer adds to its input in place
            buffer = torch.zeros(len(states), hidden)
            buffer[:] = states
            last, fed_back = drafter.forward(tokens, positions, buffer)
            states = fed_back[-1:]
            logits = drafter.model.compute_logits(last[-1:])[:, drafter.columns]
            found.append((logits[0].double().numpy(), states[0].double().numpy()))  # copies
    return DraftRollout(*(np.stack(part) for part in zip(*found)))


def _read(case: DrafterCase) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The checkpoint's weights and configuration; `NotApplicable` for what vLLM's Llama drafters have no notion of."""
    if case.variant not in METHODS:
        raise NotApplicable("its Llama drafters are EAGLE-1 and EAGLE-3 that attends from the normed pair")
    weights = {name: np.asarray(values) for name, values in case.weights.items()}
    for name in ("embed_tokens", "lm_head"):
        if f"{name}.weight" not in weights:
            raise NotApplicable(f"without {name} it takes the target's, and there is no target")
    if "fc.bias" in weights:
        raise NotApplicable(
            "its fusion has no place for a bias, which checkpoints of EAGLE-1 may have: "
            "https://github.com/vllm-project/vllm/pull/22323"
        )
    if "lm_head.bias" in weights:
        raise NotApplicable("its head has no bias")
    layer = "layers.0" if case.variant == "eagle1" else "midlayer"
    settings: dict[str, Any] = {}
    for setting, maps in BIASES.items():
        settings[setting] = any(f"{layer}.{name}.bias" in weights for name in maps)
        for name in maps if settings[setting] else ():
            if (weight := weights.get(f"{layer}.{name}.weight")) is not None:
                weights.setdefault(f"{layer}.{name}.bias", np.zeros(len(weight)))
    return weights, {**{k: v for k, v in case.config.items() if k != "fusion_order"}, **settings}


@cache
def _vllm() -> SimpleNamespace:
    """vLLM in this process, with a group of one worker."""
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    vllm_engine.engine("cpp")
    import torch
    from vllm import config, distributed, forward_context
    from vllm.distributed import parallel_state
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
    from vllm.model_executor.model_loader.utils import initialize_model, process_weights_after_loading
    from vllm.utils.torch_utils import set_default_torch_dtype
    from vllm.v1.attention.backend import CommonAttentionMetadata

    if not parallel_state.model_parallel_is_initialized():
        with config.set_current_vllm_config(config.VllmConfig()):
            store = torch.distributed.HashStore()  # type: ignore[attr-defined]
            torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
            distributed.init_distributed_environment(1, 0, "env://", 0, "gloo")
            distributed.initialize_model_parallel(1, 1)
    return SimpleNamespace(
        torch=torch,
        config=config,
        context=forward_context.set_forward_context,
        Head=ParallelLMHead,
        initialize=initialize_model,
        process=process_weights_after_loading,
        dtype=set_default_torch_dtype,
        Batch=CommonAttentionMetadata,
    )


class _Drafter:
    """A model with its weights, and the rows that it has seen. columns: where its logits hold the draft's tokens."""

    def __init__(self, config: Any, model: Any, columns: Any, length: int) -> None:
        self.model, self.columns = model, columns
        self._config, self._length, self._seen = config, length, 0
        ((self._name, self._attention),) = config.compilation_config.static_forward_context.items()
        self._builder = None
        torch, attention = _vllm().torch, self._attention
        if attention.head_size not in attention.attn_backend.get_supported_head_sizes():
            attention.impl = _Torch(torch, attention.impl.scale)
            return
        spec = attention.get_kv_cache_spec(config)
        self._blocks = torch.arange(-(-length // PAGE), dtype=torch.int32)[None]
        attention.bind_kv_cache(torch.zeros(self._blocks.numel(), spec.num_kv_heads, PAGE, 2 * spec.head_size))
        make = attention.attn_backend.get_builder_cls()
        self._builder = make(spec, [self._name], config, torch.device("cpu"))

    def forward(self, tokens: Any, positions: Any, states: Any) -> Any:
        """What the model makes of rows that follow those before: the head's input, and the states."""
        v = _vllm()
        rows, seen = len(tokens), self._seen + len(tokens)
        slots = v.torch.arange(self._seen, seen)
        metadata = None
        if self._builder is not None:
            starts = v.torch.tensor([0, rows], dtype=v.torch.int32)
            batch = v.Batch(
                query_start_loc=starts,
                query_start_loc_cpu=starts,
                seq_lens=v.torch.tensor([seen], dtype=v.torch.int32),
                num_reqs=1,
                num_actual_tokens=rows,
                max_query_len=rows,
                max_seq_len=seen,
                block_table_tensor=self._blocks,
                slot_mapping=slots,
            )
            metadata = {self._name: self._builder.build(0, batch)}
        with v.context(metadata, self._config, num_tokens=rows, slot_mapping={self._name: slots}):
            made = self.model(tokens, positions, states)
        self._seen = seen
        return made


class _Torch:
    """In the place of an attention backend's implementation: one request, by torch."""

    def __init__(self, torch: Any, scale: float) -> None:
        self._torch, self._scale = torch, scale
        self._keys: list[Any] = []
        self._values: list[Any] = []

    def do_kv_cache_update(self, layer: Any, key: Any, value: Any, cache: Any, slots: Any) -> None:
        self._keys.append(key.clone())
        self._values.append(value.clone())

    def forward(
        self, layer: Any, query: Any, key: Any, value: Any, cache: Any, metadata: Any, output: Any, **scales: Any
    ) -> Any:
        torch = self._torch
        keys, values = torch.cat(self._keys), torch.cat(self._values)
        before = len(keys) - len(query)
        visible = torch.ones(len(query), len(keys), dtype=torch.bool).tril(before)
        queries, keys, values = (rows.transpose(0, 1) for rows in (query, keys, values))
        made = torch.nn.functional.scaled_dot_product_attention(
            queries, keys, values, attn_mask=visible, scale=self._scale, enable_gqa=True
        )
        output.copy_(made.transpose(0, 1))
        return output


@contextmanager
def _drafter(case: DrafterCase, weights: dict[str, np.ndarray], settings: dict[str, Any]) -> Iterator[_Drafter]:
    """The model that vLLM makes of a configuration, with the weights loaded."""
    v = _vllm()
    torch = v.torch
    vocabulary, draft_vocabulary = (len(weights[f"{name}.weight"]) for name in ("embed_tokens", "lm_head"))
    tensors = {name: torch.tensor(np.array(values)).float() for name, values in weights.items()}
    head = tensors.pop("lm_head.weight") if case.variant == "eagle1" else None
    if "d2t" in tensors:
        tensors["d2t"] = tensors["d2t"].long()
    config = _configuration(case.variant, {**settings, "vocab_size": vocabulary}, draft_vocabulary)
    described = config.speculative_config.draft_model_config
    with v.config.set_current_vllm_config(config), v.dtype(torch.float32):
        with vllm_engine.without_luck():
            model = v.initialize(vllm_config=config, model_config=described)
            if head is not None:
                model.lm_head = v.Head(draft_vocabulary, described.get_hidden_size())
        if head is not None:
            model.lm_head.weight_loader(model.lm_head.weight, head)
        model.load_weights(tensors.items())
        v.process(model, described, torch.device("cpu"))
        columns = torch.arange(draft_vocabulary)
        offsets = getattr(model, "draft_id_to_target_id", None)
        if offsets is not None:
            columns = columns + offsets
        yield _Drafter(config, model.eval(), columns, settings["max_position_embeddings"])


def _configuration(variant: str, settings: dict[str, Any], draft_vocabulary: int) -> Any:
    """A target of the drafter's sizes, and the drafter, as vLLM reads them from their folders."""
    v = _vllm()
    layer = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": 1,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id")),
        **settings,
    }
    drafter = layer
    if variant == "eagle3":
        drafter = {**layer, "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": draft_vocabulary}
    with tempfile.TemporaryDirectory() as folder:
        for name, written in (("target", layer), ("drafter", drafter)):
            (Path(folder) / name).mkdir()
            (Path(folder) / name / "config.json").write_text(json.dumps(written), encoding="utf-8")
        target = v.config.ModelConfig(
            model=f"{folder}/target", skip_tokenizer_init=True, dtype="float32", enforce_eager=True
        )
        parallel = v.config.ParallelConfig()
        speculative = v.config.SpeculativeConfig(
            model=f"{folder}/drafter",
            method=METHODS[variant],
            num_speculative_tokens=1,
            target_model_config=target,
            target_parallel_config=parallel,
            enforce_eager=True,
        )
        return v.config.VllmConfig(
            model_config=target,
            parallel_config=parallel,
            speculative_config=speculative,
            cache_config=v.config.CacheConfig(block_size=PAGE),
            device_config=v.config.DeviceConfig("cpu"),
        )


class drafter:
    """vLLM's Llama drafters."""

    DECLARATION = Declaration(
        name="vllm, drafters",
        version=version(),
        links=(
            f"{_CODE}/model_executor/models/llama_eagle.py",
            f"{_CODE}/model_executor/models/llama_eagle3.py",
            f"{_CODE}/v1/attention/backends/cpu_attn.py",
        ),
        conventions={"fusion_order": "embedding_first"},
        arithmetic=Arithmetic(dtype="float32"),
        cost={"draft_logits": 3e-2},
        deviations=(
            Deviation(
                "DRAFTER-702",
                "a map beside a head of the target's size is refused: such a model has no place for one, though "
                "checkpoints have it",
                link="https://github.com/vllm-project/vllm/pull/53458",
            ),
            Deviation(
                "DRAFTER-1001",
                "load_weights of a drafter does not say what it loaded, so a weight that is missing is not missed; of "
                "o_proj and down_proj, where they are too wide, the first columns are taken",
                link=f"{_CODE}/model_executor/model_loader/default_loader.py",
            ),
            Deviation(
                "DRAFTER-1003",
                "the table of embeddings is padded with zeros to a multiple of 64 rows, and these are embeddings, too",
                link=f"{_CODE}/model_executor/layers/vocab_parallel_embedding.py",
            ),
        ),
    )

    draft_logits = staticmethod(draft_logits)
