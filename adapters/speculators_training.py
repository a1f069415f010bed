"""speculators' own training step, on a drafter made from a tiny random Llama, and gradients through its loop."""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from adapters.interface import NotApplicable
from adapters.samples import Sample, advanced_mask, counted_from_zero, samples
from adapters.speculators_engine import VOCABULARY, call_arguments, collated, drafter, layer_config, package, replaced
from oracle.types import Flags, Rows, StateGradientCase, TokenBatch, TrainingCase, TrainingResult

WIDTH = 8
LAYERS = 3
STEPS = 2
TARGET = ("embed_tokens", "lm_head", "verifier_lm_head", "verifier_norm")
"""Modules of the draft model that hold the target's weights, all of them frozen. The released trainer never trains
`lm_head` either: it is the target's."""


def training_step(case: TrainingCase) -> TrainingResult:
    """`Trainer.train_epoch` on `warm_steps` batches, then on the batch of the case.

    All documents of the batch are packed into one sequence, as the data loader packs them. The target itself takes no
    part in a step: its features are computed beforehand, here by a tiny random Llama, and only they reach the trainer,
    which has no notion of what they were computed from.
    """
    p = package()
    documents = samples(case.batch)
    counted_from_zero(case.batch, documents)
    if not documents:
        raise NotApplicable("a batch without documents is never loaded: the collator would make an empty sample")
    with _seeded(case.seed), tempfile.TemporaryDirectory() as folder, quiet():
        target = p.transformers.LlamaForCausalLM(layer_config(WIDTH, VOCABULARY, LAYERS)).eval()
        target.save_pretrained(folder)
        rng = np.random.default_rng(case.seed)
        warm = [_warm(rng) for _ in range(case.warm_steps)]
        batches = [_features(target, batch) for batch in (*warm, case.batch)]
        layer = layer_config(WIDTH, VOCABULARY)
        model = p.core.Eagle3DraftModel.from_training_args(
            layer,
            draft_vocab_size=VOCABULARY,
            norm_before_residual=False,
            ttt_steps=STEPS,
            verifier_name_or_path=folder,
            target_layer_ids=list(range(1, LAYERS + 1)),
            draft_attn_impl="eager",
        )
        return _trained(model, batches, case, folder)


def _trained(model: Any, batches: list[dict[str, Any]], case: TrainingCase, folder: str) -> TrainingResult:
    p = package()
    torch = p.torch
    train = call_arguments(STEPS, loss_implementation="eager")
    config = p.trainer.TrainerConfig(
        lr=1e-2,
        num_epochs=1,
        save_path=folder + "/checkpoints",
        train_call_kwargs=train,
        weight_decay=case.weight_decay,
        scheduler_type="none",
        hidden_states_dtype=torch.float32,
        log_freq=10**9,
    )
    loader = torch.utils.data.DataLoader(batches, batch_size=None)
    # the trainer moves the model to the accelerator of its rank; here that is the CPU
    with replaced(p.trainer, "get_local_rank", lambda: "cpu"):
        trainer = p.trainer.Trainer(model, config, loader)
    trainer.rank = 1  # rank 0 draws a progress bar
    trainer.global_step = 1  # step 0 is logged, which asks an accelerator to synchronise
    (optimizer,) = trainer.optimizers
    names = dict(model.named_parameters())
    seen: dict[str, Any] = {}
    compound_loss, forward = p.metrics.compound_loss, model.forward

    def judged(logits: Any, targets: Any, loss_mask: Any, *args: Any, **kwargs: Any) -> Any:
        found = compound_loss(logits, targets, loss_mask, *args, **kwargs)
        if "logits" not in seen:
            seen.update(logits=logits, targets=targets, mask=loss_mask, part=found[0])
        return found

    def last_forward(*args: Any, **kwargs: Any) -> Any:
        if trainer.global_step == len(batches):
            seen["before"] = {n: v.detach().clone() for n, v in names.items()}
            seen["moments"] = _moments(optimizer, names)
        seen.pop("logits", None)
        found = forward(*args, **kwargs)
        seen["loss"] = found[1].detach()
        return found

    model.forward = last_forward
    with replaced(p.metrics, "compound_loss", judged):
        trainer.train_epoch(0)
    moments = _moments(optimizer, names)

    def pairs(frozen: bool) -> dict[str, tuple[Rows, Rows]]:
        return {
            name: (_array(seen["before"][name]), _array(value))
            for name, value in names.items()
            if (name.partition(".")[0] in TARGET) == frozen
        }

    target, trained = pairs(True), pairs(False)
    real = batches[-1]["document_ids"][0] != -1
    return TrainingResult(
        loss=float(seen["loss"]),
        drafter=trained,
        target=target,
        drafter_grad={name: _gradient(names[name]) for name in trained},
        target_grad={name: _gradient(names[name]) for name in target},
        target_trainable=tuple(name for name in target if names[name].requires_grad),
        # a state that the step itself made was nothing before it
        optimizer={n: (seen["moments"].get(n, np.zeros_like(after)), after) for n, after in moments.items()},
        draft_logits=_array(seen["logits"][0][real]),
        target_logits=_array(seen["targets"][0][real]),
        supervise=np.array(seen["mask"][0][real].tolist(), dtype=bool),
        step_loss=float(seen["part"].detach()),
    )


def state_gradient(case: StateGradientCase) -> Flags:
    """Which states the loss of each step depends on, by autograd through the real forward with its real layer."""
    if case.gradient != "flows":
        raise NotApplicable("the fed-back state is never detached")
    p = package()
    torch = p.torch
    steps, length = case.steps, case.steps + 4
    found = [Sample(0, 0, length)]
    rng = np.random.default_rng(7)
    features = rng.normal(size=(1, length, WIDTH))
    tokens = rng.integers(0, VOCABULARY, (1, length))
    mask = np.ones((1, length), dtype=bool)
    states: list[Any] = []
    losses: list[Any] = []
    with _seeded(7):
        model = drafter(steps, WIDTH, VOCABULARY)
        for head in (model.embed_tokens, model.lm_head, model.verifier_lm_head):
            torch.nn.init.normal_(head.weight)
    model.layers[-1].register_forward_hook(lambda module, given, made: states.append(made))
    compute_metrics = p.core.compute_metrics

    def recorded(*args: Any, **kwargs: Any) -> Any:
        made = compute_metrics(*args, **kwargs)
        losses.append(made[0])
        return made

    batch = collated(found, tokens, features, features, mask, length, torch.float32)
    with replaced(p.core, "compute_metrics", recorded):
        model(**batch, **call_arguments(steps, loss_implementation="eager"))
    reached = np.zeros((steps, steps), dtype=bool)
    for s, loss in enumerate(losses):
        gradients = torch.autograd.grad(loss, states, retain_graph=True, allow_unused=True)
        reached[s] = [g is not None and bool(torch.any(g != 0)) for g in gradients]
    return reached


def _warm(rng: Any) -> TokenBatch:
    shape = (2, 5)
    return TokenBatch(
        tokens=rng.integers(0, VOCABULARY, shape),
        valid=np.ones(shape, dtype=bool),
        segment=np.zeros(shape, dtype=np.int64),
        position=np.tile(np.arange(shape[1]), (shape[0], 1)),
        supervise=np.ones(shape, dtype=bool),
    )


def _features(target: Any, batch: TokenBatch) -> dict[str, Any]:
    """The collated batch: outputs of the target's layers, and what stands before its final norm."""
    torch = package().torch
    found = samples(batch)
    shape = batch.tokens.shape
    aux, last = np.zeros((*shape, LAYERS * WIDTH)), np.zeros((*shape, WIDTH))
    outputs: list[Any] = []
    hooks = [layer.register_forward_hook(lambda m, g, made: outputs.append(made)) for layer in target.model.layers]
    for sample in found:
        where = (sample.batch, sample.addresses)
        outputs.clear()
        with torch.no_grad():
            target(input_ids=torch.tensor(batch.tokens[where], dtype=torch.long)[None])
        states = [o[0] if isinstance(o, tuple) else o for o in outputs]
        aux[where] = torch.cat([s[0] for s in states], dim=-1).tolist()
        last[where] = states[-1][0].tolist()
    for hook in hooks:
        hook.remove()
    rows = sum(sample.length - 1 for sample in found)
    mask = advanced_mask(batch, found)
    return collated(found, batch.tokens, aux, last, mask, rows + STEPS, torch.float32)


def _moments(optimizer: Any, names: dict[str, Any]) -> dict[str, Rows]:
    return {
        f"{name}.{key}": _array(value)
        for name, parameter in names.items()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def _gradient(parameter: Any) -> Rows | None:
    return None if parameter.grad is None else _array(parameter.grad)


def _array(value: Any) -> Rows:
    return np.array(value.detach().double().tolist(), dtype=np.float64)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Torch's global generator, from which modules are initialised, on a seed; put back afterwards."""
    torch = package().torch
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


@contextmanager
def quiet() -> Iterator[None]:
    """No news of what is loaded, no advice."""
    disabled = logging.root.manager.disable
    news = importlib.import_module("loguru").logger
    news.disable("speculators")
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        news.enable("speculators")
        logging.disable(disabled)


__all__: Sequence[str] = ("quiet", "state_gradient", "training_step")
