"""SpecForge's training code on a CPU, with stand-ins at its edges that record what it hands to them.

A draft model is the real class with a tiny configuration, some of its methods replaced on the instance; the target's
head is the real class around a recording projection. Everything between them is SpecForge's: the offline normaliser,
the collator, the head's shift, the rollout loop, the loss kernels (interpreted), the strategy and the optimizer.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

from adapters import eagle3_loop as loop
from adapters import step_weights, triton_interpreter
from adapters.backward import twice
from adapters.interface import AdapterError
from oracle.types import Flags, RolloutLossCase, Rows

HIDDEN = 8
"""Width of the tiny draft model."""
MOST_TOKENS = 2048
"""What samples are truncated to, as by default."""
SHARPNESS = 20.0
"""Logit of the one token that a recording head points at."""


@functools.cache
def specforge() -> Any:
    """The modules under test and torch, imported so that the CPU can run their kernels."""
    triton_interpreter.interpret("specforge")
    # torch.compile would need a C++ compiler, and changes nothing but the speed
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    names = {
        "torch": "torch",
        "model": "specforge.algorithms.eagle3.model",
        "data": "specforge.algorithms.eagle3.data",
        "loss": "specforge.core.loss",
        "draft": "specforge.modeling.draft.llama3_eagle",
        "head": "specforge.modeling.target.target_head",
        "strategy": "specforge.training.strategies.base",
        "controller": "specforge.training.controller",
        "backend": "specforge.training.backend",
        "optimizer": "specforge.optimizer",
        "contracts": "specforge.runtime.contracts",
        "transformers": "transformers",
    }
    try:
        modules = {name: importlib.import_module(path) for name, path in names.items()}
        modules["torch"].set_num_threads(1)
    except ImportError as error:
        raise AdapterError(
            f"adapters.specforge needs `pip install -r adapters/requirements/trainers.txt` ({error})"
        ) from error
    loss = modules["loss"]
    for kernel in ("log_softmax_forward_kernel", "log_softmax_backward_kernel"):
        setattr(loss, kernel, _Launched(getattr(loss, kernel)))
    return SimpleNamespace(**modules)


class _Launched:
    """A kernel whose launches go through `triton_interpreter.launch`."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            with triton_interpreter.launch():
                return self._kernel[grid](*arguments, **options)

        return run


def draft_model(
    vocabulary: int, draft_vocabulary: int | None = None, width: int = HIDDEN, heads: int = 2, attention: str = "sdpa"
) -> Any:
    """A tiny draft model of the real class; torch's global generator gives its weights."""
    sf = specforge()
    configuration = sf.transformers.LlamaConfig(
        hidden_size=width,
        intermediate_size=2 * width,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        num_hidden_layers=1,
        vocab_size=vocabulary,
        max_position_embeddings=64,
        pad_token_id=0,
    )
    configuration.draft_vocab_size = vocabulary if draft_vocabulary is None else draft_vocabulary
    with contextlib.redirect_stdout(io.StringIO()):  # it tells of an attention that is not the default
        return sf.draft.LlamaForCausalLMEagle3(configuration, attention_backend=attention)


def target_head(projection: Any) -> Any:
    """The real head without its constructor, which reads a checkpoint."""
    sf = specforge()
    head = sf.head.TargetHead.__new__(sf.head.TargetHead)
    sf.torch.nn.Module.__init__(head)
    head.fc = projection
    head.freeze_weights()
    return head


def collated(raw: Sequence[tuple[Any, Any, Any, Any]]) -> Any:
    """A `TrainBatch` of (tokens [L], auxiliary features [L, ·], last features [L, d], mask [L]), one a sample."""
    sf = specforge()
    torch = sf.torch
    normalised = [
        sf.data.normalize_offline_sample(
            {
                "input_ids": torch.as_tensor(tokens),
                "aux_hidden_state": torch.as_tensor(auxiliary)[None],
                "hidden_state": torch.as_tensor(last)[None],
                "loss_mask": torch.as_tensor(mask).long(),
            },
            MOST_TOKENS,
        )
        for tokens, auxiliary, last, mask in raw
    ]
    return sf.contracts.TrainBatch(
        sample_ids=[str(i) for i in range(len(raw))],
        strategy="eagle3",
        tensors=sf.data.build_offline_collator()(normalised),
        metadata={"target_repr": "hidden_state"},
    )


def trace(given: Sequence[loop.Sample], steps: int) -> loop.Trace:
    """What the draft model is fed and trained towards in a rollout."""
    sf = specforge()
    torch = sf.torch
    batch = collated([(s.tokens, s.features, s.features, s.mask) for s in given])
    rows = (len(given), loop.longest(given))
    entries = rows[0] * rows[1]
    tokens, fed, laws, masks = [], [], [], []
    read: list[Any] = []
    with torch.random.fork_rng(devices=[]):
        draft = draft_model(entries + 1)
    layer = draft.backbone

    def embed(ids: Any) -> Any:
        tokens.append(ids)
        return torch.zeros((*ids.shape, HIDDEN))

    def backbone(input_embeds: Any, hidden_states: Any, **arguments: Any) -> Any:
        # the real layer runs for the positions that its attention makes of the ids it is given
        layer(input_embeds=input_embeds, hidden_states=torch.zeros_like(input_embeds), **arguments)
        fed.append(hidden_states)
        codes = torch.as_tensor(loop.state_code(given, len(fed) - 1))
        return codes[..., None].expand(hidden_states.shape).to(hidden_states.dtype)

    def losses(logits: Any, target_p: Any, position_mask: Any, **others: Any) -> Any:
        laws.append(target_p)
        masks.append(position_mask)
        return (torch.zeros(()),) * 7

    draft.project_hidden_states = lambda hidden_states: hidden_states
    draft.embed_input_ids = embed
    draft.backbone = backbone
    draft.compute_logits = lambda hidden_states: torch.zeros((*rows, entries + 1))
    model = sf.model.OnlineEagle3Model(draft, length=steps)
    model._acc_and_loss = losses
    strategy = sf.strategy.Eagle3TrainStrategy(model, target_head=target_head(_pointer(read)))
    with torch.no_grad(), positions_of(sf.draft) as positions:
        strategy.forward_loss(batch)
    return loop.Trace(
        tokens=_stacked(tokens).astype(np.int64),
        fed=_stacked(fed),
        target=loop.peak(_stacked(laws)),
        read=_array(read[0]).reshape(entries, -1),
        supervised=_stacked(masks)[..., 0] != 0,
        position=np.broadcast_to(_stacked(positions), (steps, *rows)).astype(np.int64),
        visible=_array(batch.tensors["attention_mask"]) != 0,
    )


def step_losses(case: RolloutLossCase, kept: Flags) -> tuple[float, list[float], Rows, Rows]:
    """The strategy's loss of a rollout, its step losses, and the gradient to the draft logits, twice.

    The loop takes a step's targets from those of step 0, moved left, so targets that are free at every step cannot
    pass it. Each step is a rollout of one step of its own here, through the same model, gate and kernel, and the
    strategy weighs them. The decay is a parameter of the strategy, and is left at its default.
    """
    sf = specforge()
    torch = sf.torch
    draft_logits, target_logits = np.asarray(case.draft_logits), np.asarray(case.target_logits)
    supervise = np.asarray(case.supervise)
    steps, rows, width = draft_logits.shape
    trained = [torch.tensor(logits[None], dtype=torch.float32, requires_grad=True) for logits in draft_logits]
    with torch.random.fork_rng(devices=[]):
        draft = draft_model(target_logits.shape[2], width)
    draft.t2d.copy_(torch.tensor(kept))
    draft.d2t.copy_(torch.tensor(np.flatnonzero(kept) - np.arange(width)))
    draft.project_hidden_states = lambda hidden_states: hidden_states
    draft.backbone = lambda hidden_states, **others: hidden_states
    at = {"step": 0}
    draft.compute_logits = lambda hidden_states: trained[at["step"]]
    one_step = sf.model.OnlineEagle3Model(draft, length=1)

    def all_steps(**arguments: Any) -> Any:
        collected: Any = None
        for s in range(steps):
            at["step"] = s
            arguments |= {
                "target": torch.tensor(target_logits[s][None], dtype=torch.float32),
                "loss_mask": torch.tensor(supervise[s][None, :, None]).long(),
            }
            lists = one_step(**arguments)
            collected = lists if collected is None else [a + b for a, b in zip(collected, lists, strict=True)]
        return collected

    whole = torch.nn.Linear(1, 1)
    whole.forward = all_steps
    strategy = sf.strategy.Eagle3TrainStrategy(whole)
    step_weights.powers_of(strategy.ploss_decay, case)
    batch = sf.contracts.TrainBatch(
        sample_ids=["0"],
        strategy="eagle3",
        tensors={
            "input_ids": torch.zeros((1, rows), dtype=torch.int64),
            "attention_mask": torch.ones((1, rows), dtype=torch.int64),
            "loss_mask": torch.tensor(supervise[0][None, :, None]).long(),
            "hidden_state": torch.zeros((1, rows, 1)),
            "target": torch.zeros((1, rows, 1)),
        },
        metadata={"target_repr": "logits"},
    )
    output = strategy.forward_loss(batch)
    first, second = twice(output.loss, trained)
    parts = [float(part) for part in output.metrics["plosses"]]
    return float(output.loss.detach()), parts, np.concatenate(first), np.concatenate(second)


def kernel_loss(draft_logits: Rows, target_logits: Rows, supervise: Flags) -> tuple[float, Rows, Rows]:
    """The loss kernel's mean over all rows, and its gradient to the draft logits, twice, on one vocabulary."""
    sf = specforge()
    torch = sf.torch
    trained = torch.tensor(draft_logits[None], dtype=torch.float32, requires_grad=True)
    law, _, _, mask = sf.model._compute_target_p(
        target=torch.tensor(target_logits[None], dtype=torch.float32),
        t2d=torch.ones(target_logits.shape[1], dtype=torch.bool),
        loss_mask=torch.tensor(supervise[None, :, None]).long(),
    )
    loss = sf.loss.LogSoftmaxLoss.apply(trained, law, mask)
    first, second = twice(loss, [trained])
    return float(loss.detach()), first[0][0], second[0][0]


def state_gradients(steps: int) -> Flags:
    """Whether autograd reaches the state of step r from the loss of step s, in the real loop and the real layer."""
    sf = specforge()
    torch = sf.torch
    count = steps + 2  # the row of step 0 has a next token at every step, and the last token is never supervised
    vocabulary = 8
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        draft = draft_model(vocabulary)
        tokens = torch.randint(0, vocabulary, (count,))
        auxiliary, last = torch.randn(count, 3 * HIDDEN), torch.randn(count, HIDDEN)
        head = target_head(torch.nn.Linear(HIDDEN, vocabulary, bias=False))
    layer, states, losses = draft.backbone, [], []

    def backbone(**arguments: Any) -> Any:
        states.append(layer(**arguments))
        return states[-1]

    draft.backbone = backbone
    model = sf.model.OnlineEagle3Model(draft, length=steps)
    whole = model._acc_and_loss

    def keep(**arguments: Any) -> Any:
        found = whole(**arguments)
        losses.append(found[2])
        return found

    model._acc_and_loss = keep
    strategy = sf.strategy.Eagle3TrainStrategy(model, target_head=head)
    reached = np.zeros((steps, steps), dtype=bool)
    strategy.forward_loss(collated([(tokens, auxiliary, last, np.ones(count, dtype=bool))]))
    for s, loss in enumerate(losses):
        for r, found in enumerate(torch.autograd.grad(loss, states, retain_graph=True, allow_unused=True)):
            reached[s, r] = found is not None and bool(found.any())
    return reached


def _pointer(read: list[Any]) -> Any:
    """A projection that records its input and gives the law of entry i one peak, at token i."""
    torch = specforge().torch
    projection = torch.nn.Linear(1, 1)

    def project(hidden: Any) -> Any:
        read.append(hidden)
        rows, count, _ = hidden.shape
        laws = torch.eye(rows * count, rows * count + 1) * SHARPNESS
        return laws.reshape(rows, count, -1)

    projection.forward = project
    return projection


@contextmanager
def positions_of(module: Any) -> Iterator[list[Any]]:
    """The positions [1 or B, N] that the attention of each step turns its queries and keys by."""
    found: list[Any] = []
    rotate: Callable[..., Any] = module.apply_rotary_pos_emb

    def record(q: Any, k: Any, cos: Any, sin: Any, position_ids: Any, *others: Any, **more: Any) -> Any:
        found.append(position_ids)
        return rotate(q, k, cos, sin, position_ids, *others, **more)

    module.apply_rotary_pos_emb = record
    try:
        yield found
    finally:
        module.apply_rotary_pos_emb = rotate


def _array(tensor: Any) -> np.ndarray:
    found: np.ndarray = tensor.detach().numpy().copy()
    return found


def _stacked(tensors: Sequence[Any]) -> np.ndarray:
    return np.stack([_array(tensor) for tensor in tensors])


def compared_ids(d2t: np.ndarray, t2d: np.ndarray | None) -> np.ndarray:
    """The target ids that the accuracy metric makes of the draft ids 0, 1, 2, … by a map from a checkpoint."""
    sf = specforge()
    torch = sf.torch
    count = len(d2t)
    # a map without a mask keeps the one that the model starts with
    vocabulary = len(t2d) if t2d is not None else max([count, *(np.arange(count) + d2t + 1).tolist()])
    with torch.random.fork_rng(devices=[]):
        draft = draft_model(vocabulary, count)
    checkpoint = io.BytesIO()
    torch.save({"t2d": draft.t2d if t2d is None else torch.tensor(t2d), "d2t": torch.tensor(d2t)}, checkpoint)
    checkpoint.seek(0)
    draft.load_vocab_mapping(checkpoint)
    heard = _Ear()
    model = sf.model.OnlineEagle3Model(draft, length=1)
    whole = sf.model._compute_loss_and_acceptance_rate
    sf.model._compute_loss_and_acceptance_rate = lambda **others: (torch.zeros(()), torch.zeros(()))
    try:
        model._acc_and_loss(
            logits=torch.eye(count)[None],
            target_p=None,
            target_p_on_draft=None,
            target_token_ids=heard,
            position_mask=None,
            loss_mask=torch.ones((1, count, 1)),
            adapter=model._make_adapter(),
        )
    finally:
        sf.model._compute_loss_and_acceptance_rate = whole
    found: np.ndarray = _array(heard.compared)[0].astype(np.int64)
    return found


class _Ear:
    """Stands for the observed tokens in `predicted == observed`, and keeps what was predicted."""

    compared: Any = None

    def __eq__(self, predicted: object) -> Any:
        self.compared = predicted
        return specforge().torch.zeros_like(predicted)
