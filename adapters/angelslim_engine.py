"""AngelSlim's training code on a CPU, with stand-ins at its edges that record what it hands to them.

A draft model is the real class with a tiny configuration, some of its methods replaced on the instance; the target's
head is the real class around a recording projection. Everything between them is AngelSlim's: the collator, the
trainer's shift and its rollout loop with the loss in it.

The wheel misses modules that its packages import on the way (and others need packages that training does not), so
the packages above those under test are registered as bare paths: their `__init__` never runs.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from adapters import eagle3_loop as loop
from adapters.backward import twice
from adapters.interface import AdapterError
from oracle.types import Flags, Rows

HIDDEN = 8
"""Width of the tiny draft model."""
SHARPNESS = 20.0
"""Logit of the one token that a recording head points at."""
_TRAIN = "angelslim.compressor.speculative.train"
_INFERENCE = "angelslim.compressor.speculative.inference"
_BARE = (
    *("angelslim", "angelslim.compressor", "angelslim.compressor.speculative", _TRAIN, f"{_TRAIN}.data"),
    *(_INFERENCE, f"{_INFERENCE}.models", f"{_INFERENCE}.models.eagle3"),
)


@functools.cache
def angelslim() -> Any:
    """The modules under test and torch."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    names = {
        "torch": "torch",
        "transformers": "transformers",
        "data": f"{_TRAIN}.data.data_utils",
        "noise": f"{_TRAIN}.data.noise_transforms",
        "draft": f"{_TRAIN}.models.draft.llama_eagle3",
        "head": f"{_TRAIN}.models.target.target_head",
        "trainer": f"{_TRAIN}.trainer.eagle3_trainer",
        "offline": f"{_TRAIN}.trainer.offline_eagle3_trainer",
        "drafter": f"{_INFERENCE}.models.eagle3.draft.llama3_eagle3",
        "functions": "angelslim.compressor.speculative.utils.util",
    }
    try:
        _register_bare_packages()
        modules = {name: importlib.import_module(path) for name, path in names.items()}
        modules["torch"].set_num_threads(1)
    except ImportError as error:
        raise AdapterError(
            f"adapters.angelslim needs `pip install -r adapters/requirements/trainers.txt` ({error})"
        ) from error
    return SimpleNamespace(**modules)


def _register_bare_packages() -> None:
    for name in _BARE:
        if name in sys.modules:
            continue
        parent, _, leaf = name.rpartition(".")
        if parent:
            places = [os.path.join(place, leaf) for place in sys.modules[parent].__path__]
        else:
            found = importlib.util.find_spec(name)
            if found is None or found.submodule_search_locations is None:
                raise ImportError(f"no package {name!r}")
            places = list(found.submodule_search_locations)
        package = ModuleType(name)
        package.__path__ = places
        sys.modules[name] = package


def draft_model(vocabulary: int, kept: Flags, width: int = HIDDEN, heads: int = 2) -> Any:
    """A tiny draft model of the real class, its vocabulary the tokens kept; torch's generator gives its weights."""
    a = angelslim()
    configuration = a.transformers.LlamaConfig(
        hidden_size=width,
        intermediate_size=2 * width,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        num_hidden_layers=1,
        vocab_size=vocabulary,
        max_position_embeddings=64,
        pad_token_id=0,
    )
    ids = np.flatnonzero(kept)
    configuration.draft_vocab_size = len(ids)
    draft = a.draft.Eagle3LlamaForCausalLM(configuration)
    draft.t2d.copy_(a.torch.tensor(kept))
    draft.d2t.copy_(a.torch.tensor(ids - np.arange(len(ids))))
    return draft


def bare_trainer(draft: Any, projection: Any, steps: int) -> Any:
    """The offline trainer without its constructor, which sets a whole training run up."""
    a = angelslim()
    trainer = a.offline.OfflineEagle3Trainer.__new__(a.offline.OfflineEagle3Trainer)
    trainer.model, trainer.length = draft, steps
    trainer.target_head = None if projection is None else a.head.TargetHead(projection)
    trainer._train_pending_log, trainer._train_pending_log_count = {}, 0
    return trainer


def record(tokens: Any, auxiliary: Any, last: Any, mask: Any) -> dict[str, Any]:
    """What `OfflineEagle3Dataset` reads from a sample's file, and the attention mask that it adds."""
    torch = angelslim().torch
    ids = torch.as_tensor(tokens)[None]
    return {
        "input_ids": ids,
        "hidden_states": torch.as_tensor(auxiliary)[None],
        "target_hiddens": torch.as_tensor(last)[None],
        "loss_mask": torch.as_tensor(mask).long()[None],
        "attention_mask": torch.ones_like(ids),
    }


def trace(given: Sequence[loop.Sample], steps: int) -> loop.Trace:
    """What the draft model is fed and trained towards in a rollout."""
    torch = angelslim().torch
    batch = angelslim().data.DataCollatorWithPadding()(
        [record(s.tokens, s.features, s.features, s.mask) for s in given]
    )
    rows = (len(given), loop.longest(given))
    entries = rows[0] * rows[1]
    visible = batch["attention_mask"].numpy() != 0
    with torch.random.fork_rng(devices=[]):
        draft = draft_model(entries + 1, np.ones(entries + 1, dtype=bool))
        # no law of a target is this one, so every row that counts has a gradient
        logits = [torch.randn(*rows, entries + 1, requires_grad=True) for _ in range(steps)]
    layer = draft.encode_layers
    tokens, fed, positions = [], [], []
    read: list[Any] = []

    def embed(ids: Any) -> Any:
        tokens.append(ids)
        return torch.zeros((*ids.shape, HIDDEN))

    def encode(inputs_embeds: Any, hidden_states: Any, **arguments: Any) -> Any:
        # the real layer runs for the positions that its attention makes of the ids it is given
        with torch.no_grad():
            _, cache = layer(inputs_embeds=inputs_embeds, hidden_states=torch.zeros_like(inputs_embeds), **arguments)
        fed.append(hidden_states)
        codes = torch.as_tensor(loop.state_code(given, len(fed) - 1))
        return codes[..., None].expand(hidden_states.shape).to(hidden_states.dtype), cache

    draft.combine_hidden_states = lambda hidden_states: hidden_states
    draft.embed_input_ids = embed
    draft.encode_layers = encode
    draft.compute_logits = lambda hidden_states: logits[len(fed) - 1]
    attention = draft.midlayer.self_attn
    rotate = attention.rope_apply_func

    def rotated(q: Any, k: Any, cos: Any, sin: Any, position_ids: Any, *others: Any) -> Any:
        positions.append(position_ids)
        return rotate(q, k, cos, sin, position_ids, *others)

    attention.rope_apply_func = rotated
    with _target_logits(draft) as laws:
        bare_trainer(draft, _pointer(read), steps).compute_loss(draft, batch).backward()
    return loop.Trace(
        tokens=_stacked(tokens).astype(np.int64),
        fed=_stacked(fed),
        target=loop.peak(_stacked(laws)),
        read=_array(read[0]).reshape(entries, -1),
        supervised=np.stack([np.any(_array(one.grad) != 0, axis=-1) for one in logits]),
        position=np.broadcast_to(_stacked(positions), (steps, *rows)).astype(np.int64),
        visible=visible,
    )


def step_losses(
    draft_logits: Rows, target_logits: Rows, supervise: Flags, kept: Flags
) -> tuple[float, list[float], Rows, Rows]:
    """The loss of the whole loop, its step losses, and the gradient to the draft logits, twice.

    The loop moves targets and mask left by one a step. Those of a case are free at every step, so while it lasts the
    trainer's shift hands out the case's next ones; weights, gate, softmaxes and means are the loop's own.
    """
    a = angelslim()
    torch = a.torch
    steps, rows, _ = draft_logits.shape
    trained = [torch.tensor(logits[None], dtype=torch.float32, requires_grad=True) for logits in draft_logits]
    targets = [torch.tensor(logits[None], dtype=torch.float32) for logits in target_logits]
    masks = [torch.tensor(flags[None, :, None]).long() for flags in supervise]
    with torch.random.fork_rng(devices=[]):
        draft = draft_model(target_logits.shape[2], kept)
    following = {id(one): after for series in (targets, masks) for one, after in pairwise(series)}
    left = iter(trained)
    draft.embed_input_ids = lambda ids: torch.zeros((*ids.shape, HIDDEN))
    draft.encode_layers = lambda hidden_states, cache_hidden, **others: (hidden_states, cache_hidden)
    draft.compute_logits = lambda hidden_states: next(left)
    trainer = bare_trainer(draft, None, steps)
    shift = a.trainer.padding
    a.trainer.padding = lambda tensor, **others: following.get(id(tensor), tensor)
    try:
        loss = trainer.draft_model_training_time_test(
            torch.zeros((1, rows), dtype=torch.int64),
            torch.zeros((1, rows, HIDDEN)),
            None,
            torch.arange(rows)[None],
            targets[0],
            masks[0],
            log_prefix="train",
        )
    finally:
        a.trainer.padding = shift
    first, second = twice(loss, trained)
    parts = [float(trainer._train_pending_log[f"train/ploss_{s}"]) for s in range(steps)]
    return float(loss.detach()), parts, np.concatenate(first), np.concatenate(second)


def state_gradients(steps: int) -> Flags:
    """Whether autograd reaches the state of step r from the loss of step s, in the real loop and the real layer.

    The loop returns the sum of its step losses alone, so each step's is asked for with the draft logits of all others
    held constant.
    """
    torch = angelslim().torch
    count = steps + 1
    vocabulary = 8
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        draft = draft_model(vocabulary, np.ones(vocabulary, dtype=bool))
        sample = record(
            torch.randint(0, vocabulary, (count,)),
            torch.randn(count, 3 * HIDDEN),
            torch.randn(count, HIDDEN),
            np.ones(count, dtype=bool),
        )
        projection = torch.nn.Linear(HIDDEN, vocabulary, bias=False)
    layer, head = draft.encode_layers, draft.compute_logits
    reached = np.zeros((steps, steps), dtype=bool)
    for s in range(steps):
        states: list[Any] = []

        def encode(states: list[Any] = states, **arguments: Any) -> Any:
            state, cache = layer(**arguments)
            states.append(state)
            return state, cache

        def logits(hidden_states: Any, states: list[Any] = states, only: int = s) -> Any:
            found = head(hidden_states)
            return found if len(states) == only + 1 else found.detach()

        draft.encode_layers, draft.compute_logits = encode, logits
        batch = angelslim().data.DataCollatorWithPadding()([dict(sample)])
        loss = bare_trainer(draft, projection, steps).compute_loss(draft, batch)
        for r, found in enumerate(torch.autograd.grad(loss, states, allow_unused=True)):
            reached[s, r] = found is not None and bool(found.any())
    return reached


def noisy(features: Rows, targets: Rows, std: float, seed: int) -> tuple[Rows, Rows]:
    """A stored sample as the data set with its transform hands it out."""
    a = angelslim()
    stored = [record(np.arange(len(features)), features, targets, np.ones(len(features), dtype=bool))]
    a.torch.default_generator.manual_seed(seed)
    sample = a.noise.TransformDataset(stored, a.noise.GaussianNoise(std=std))[0]
    return _array(sample["hidden_states"])[0], _array(sample["target_hiddens"])[0]


def _pointer(read: list[Any]) -> Any:
    """A projection that records its input and gives the law of entry i one peak, at token i."""
    torch = angelslim().torch
    projection = torch.nn.Linear(1, 1)

    def project(hidden: Any) -> Any:
        read.append(hidden)
        rows, count, _ = hidden.shape
        return (torch.eye(rows * count, rows * count + 1) * SHARPNESS).reshape(rows, count, -1)

    projection.forward = project
    return projection


@contextmanager
def _target_logits(draft: Any) -> Iterator[list[Any]]:
    """The target logits [B, N, V] that the loop cuts down to the draft vocabulary, a tensor a step."""
    from torch.overrides import TorchFunctionMode

    found: list[Any] = []
    index = angelslim().torch.Tensor.__getitem__

    def listen(self: Any, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        if function is index and isinstance(arguments[1], tuple) and arguments[1][-1] is draft.t2d:
            found.append(arguments[0])
        return function(*arguments, **(options or {}))

    mode: Any = type("Listener", (TorchFunctionMode,), {"__torch_function__": listen})
    with mode():
        yield found


def _array(tensor: Any) -> np.ndarray:
    found: np.ndarray = tensor.detach().numpy().copy()
    return found


def _stacked(tensors: Sequence[Any]) -> np.ndarray:
    return np.stack([_array(tensor) for tensor in tensors])
