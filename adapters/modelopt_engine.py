"""modelopt at work: the tiny random Llama that it converts, its collator, its forward with parts that only pass on.

Everything that decides (shifts, masks, the loop over steps, the losses and their weights) is the package's own code.
Replaced are the parts whose numbers do not matter: embedding, layer, norms and heads, so that what reaches them is seen
as it is.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from adapters.interface import AdapterError
from adapters.samples import Sample
from oracle.types import Flags, Ids, Rows

SOURCE = (
    "https://github.com/NVIDIA/Model-Optimizer/blob/a2fbac7bad8ab446d3f8783dadb0c3366eb0ad73/modelopt/torch/speculative"
)
VOCABULARY = 16
WIDTH = 8
LAYERS = 3


@dataclass(frozen=True)
class Package:
    """The modules of the package that are called."""

    torch: Any
    transformers: Any
    speculative: Any
    utils: Any
    module: Any
    plugin: Any


@cache
def package() -> Package:
    """Import it the first time; `AdapterError` where it is not there."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    names = (
        *("torch", "transformers", "modelopt.torch.speculative", "modelopt.torch.speculative.eagle.utils"),
        *("modelopt.torch.speculative.plugins.modeling_eagle", "modelopt.torch.speculative.plugins.hf_eagle"),
    )
    try:
        with quiet():
            found = Package(*(importlib.import_module(name) for name in names))
    except ImportError as error:
        raise AdapterError(
            f"adapters.modelopt needs what adapters/requirements/trainers.txt lists, see its comments ({error})"
        ) from error
    found.torch.set_num_threads(1)
    return found


@contextmanager
def quiet() -> Iterator[None]:
    """No news of what was found in a model, no advice."""
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        yield


def base_model(vocabulary: int, width: int = WIDTH) -> Any:
    """A random Llama of one head and three layers."""
    p = package()
    made: Any = p.transformers.LlamaConfig
    return p.transformers.LlamaForCausalLM(
        made(
            hidden_size=width,
            num_attention_heads=1,
            num_key_value_heads=1,
            head_dim=width,
            intermediate_size=2 * width,
            num_hidden_layers=LAYERS,
            vocab_size=vocabulary,
            max_position_embeddings=512,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=None,
        )
    )


def converted(base: Any, steps: int, draft: int, offline: bool = True, width: int = WIDTH) -> Any:
    """A base model with an EAGLE-3 drafter of `draft` tokens that is rolled out for `steps` steps.

    Offline, the base model's features come with the batch, and it keeps its embedding and its head alone. The decay of
    the step losses is a parameter of the conversion, and is left at its default.
    """
    layer = {
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "head_dim": width,
        "intermediate_size": 2 * width,
        "draft_vocab_size": draft,
        "eagle_aux_hidden_state_layer_ids": list(range(LAYERS)),
    }
    config = {
        "eagle_offline": offline,
        "eagle_ttt_steps": steps,
        "eagle_use_torch_compile": False,
        "eagle_architecture_config": layer,
    }
    with quiet():
        return package().speculative.convert(base, [("eagle", config)])


def collated(
    found: Sequence[Sample], tokens: Ids, last: Rows, aux: Rows, mask: Flags, train_len: int
) -> dict[str, Any]:
    """The batch that training gets: each sample dumped, loaded by the data set with its mask, and padded."""
    p = package()
    torch = p.torch
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for i, sample in enumerate(found):
            where = (sample.batch, sample.addresses)
            dump = {
                "input_ids": torch.tensor(tokens[where], dtype=torch.long),
                "hidden_states": torch.tensor(last[where], dtype=torch.float32),
                "aux_hidden_states": torch.tensor(aux[where], dtype=torch.float32),
                "loss_mask": torch.tensor(mask[where], dtype=torch.bool),
            }
            files.append(os.path.join(folder, f"{i}.pt"))
            torch.save(dump, files[-1])
        dataset = p.utils.OfflineSupervisedDataset(files, answer_only_loss=True)
        batch: dict[str, Any] = p.utils.EagleOfflineDataCollator(train_len)([dataset[i] for i in range(len(files))])
    return batch


@dataclass(frozen=True)
class Step:
    """One step of the loop, an entry a sample and a row: what the layer was fed, and what was made of it.

    token: code that the embedding was asked for. state: [B, S, d] of the layer's input. target: the number of the
    base model's row, b·S + t, that the loss puts beside this row's logits; `counted` says whether there is one.
    """

    token: Ids
    state: Rows
    position: Ids
    target: Ids
    supervise: Flags
    counted: Flags


@dataclass(frozen=True)
class Rollout:
    """A run of the loop. visible: whether step 0 may attend to the row. hidden: what the base model's head was fed."""

    visible: Flags
    hidden: Rows
    steps: list[Step]


def maker(code: float, shape: tuple[int, int]) -> tuple[int, int, int]:
    """The step, the sample and the row that made a state; its code is −1 − ((step·B + sample)·S + row)."""
    step, place = divmod(round(-code) - 1, shape[0] * shape[1])
    return step, *divmod(place, shape[1])


def rolled_out(batch: dict[str, Any], positions: Ids, steps: int) -> Rollout:
    """The real forward over a collated batch, with parts that pass on and record what they get."""
    torch = package().torch
    with torch.random.fork_rng(devices=[]):  # what modules are initialised with is nobody's business
        model = converted(base_model(VOCABULARY), steps, VOCABULARY).train()
    features = batch["base_model_outputs"]["base_model_hidden_states"]
    rows, length, width = features.shape
    fed: list[tuple[Any, ...]] = []
    judged: list[tuple[Any, Any, Any]] = []
    drafter = model.eagle_module

    class Embedding(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, ids: Any) -> Any:
            return ids.to(torch.float32)[..., None].expand(*ids.shape, width)

    class Layer(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, norm: Any) -> None:
            super().__init__()
            self.input_layernorm = norm  # the mask's dtype is read from it

        def forward(self, hidden_states: Any, attention_mask: Any, position_ids: Any, **_: Any) -> Any:
            # where the real layer's attention takes the embedding from
            fed.append((drafter._input_embeds[..., 0], hidden_states, position_ids, attention_mask))
            made = torch.arange(rows * length, dtype=torch.float32) + (len(fed) - 1) * rows * length
            return (-1 - made).reshape(rows, length, 1).expand(rows, length, width)

    class Head(torch.nn.Module):  # type: ignore[misc,name-defined]
        """The draft's logits: the state's code, then zeros."""

        def forward(self, state: Any) -> Any:
            return torch.nn.functional.pad(state[..., :1], (0, rows * length - 1))

    class BaseHead(torch.nn.Module):  # type: ignore[misc,name-defined]
        """The base model's logits: the most probable token of row (b, t) is b·S + t."""

        def forward(self, hidden: Any) -> Any:
            return torch.eye(rows * length, dtype=torch.float32).reshape(rows, length, -1)

    drafter.layers, drafter.lm_head = torch.nn.ModuleList([Layer(drafter.layers[0].input_layernorm)]), Head()
    drafter.fc, drafter.norm = torch.nn.Identity(), torch.nn.Identity()
    model.model.embed_tokens, model.lm_head = Embedding(), BaseHead()
    hidden: list[Any] = []
    model.lm_head.register_forward_hook(lambda module, given, made: hidden.append(given[0]))
    loss = model._eagle_loss

    def recorded(law: Any, best: Any, logits: Any, loss_mask: Any) -> Any:
        judged.append((logits[..., 0], best, loss_mask))
        return loss(law, best, logits, loss_mask)

    model._eagle_loss = recorded
    model(**batch, position_ids=torch.tensor(positions))
    found = []
    for s, ((token, state, position, _), (logits, best, mask)) in enumerate(zip(fed, judged, strict=True)):
        target, supervise = np.full((rows, length), -1, dtype=np.int64), np.zeros((rows, length), dtype=bool)
        for b in range(rows):
            for i, code in enumerate(logits[b].tolist()):
                step, row_batch, row = maker(code, (rows, length))
                if (step, row_batch) != (s, b):
                    raise AdapterError(f"step {s} judges the logits of step {step}, sample {b} those of {row_batch}")
                target[b, row], supervise[b, row] = int(best[b, i]), bool(mask[b, i])
        found.append(
            Step(
                np.array(token.tolist()).astype(np.int64),
                np.array(state.tolist()),
                np.array(position.tolist(), dtype=np.int64),
                target,
                supervise,
                target >= 0,
            )
        )
    mask = fed[0][3]
    visible = [[bool(mask[b, 0, r, r] == 0) for r in range(length)] for b in range(rows)]
    return Rollout(np.array(visible), np.array(hidden[0].tolist()), found)
