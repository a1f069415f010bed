"""A training step of a model that modelopt has converted, and gradients through its loop."""

from __future__ import annotations

import logging
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from adapters.interface import NotApplicable
from adapters.modelopt_engine import LAYERS, VOCABULARY, WIDTH, base_model, collated, converted, package, quiet
from adapters.samples import advanced_mask, counted_from_zero, samples
from oracle.types import Flags, Rows, StateGradientCase, TokenBatch, TrainingCase, TrainingResult

STEPS = 2


def training_step(case: TrainingCase) -> TrainingResult:
    """`transformers.Trainer`, which the package is trained with, on `warm_steps` batches, then on that of the case.

    The base model is in the model that is trained, and computes its features in each step; where a case says what
    features were cached for, they are dumped before, and training is offline. A dump does not say where it comes from.
    All batches have the shape of the case's: the masks of later steps are kept by step, for one length.
    """
    documents = samples(case.batch)
    counted_from_zero(case.batch, documents)
    if not documents:
        raise NotApplicable("a data set has no samples without tokens")
    with _generators(case.seed), tempfile.TemporaryDirectory() as folder, quiet():
        base = base_model(VOCABULARY)
        rng = np.random.default_rng(case.seed)
        shape = (len(documents), case.batch.tokens.shape[1])
        made = [*(_warm(rng, shape) for _ in range(case.warm_steps)), case.batch]
        cached = case.cached_for is not None
        batches = [_dumped(base, batch) if cached else _batch(batch) for batch in made]
        return _trained(converted(base, STEPS, VOCABULARY, offline=cached), batches, case, folder)


def _trained(model: Any, batches: list[dict[str, Any]], case: TrainingCase, folder: str) -> TrainingResult:
    p = package()
    torch, transformers = p.torch, p.transformers
    names = dict(model.named_parameters())
    seen: dict[str, Any] = {}

    class Watched(transformers.TrainerCallback):  # type: ignore[misc,name-defined]
        """Looks at the last step before it begins, and at its gradients before they are cleared."""

        def on_step_begin(self, args: Any, state: Any, control: Any, optimizer: Any = None, **_: Any) -> None:
            if state.global_step == len(batches) - 1:
                seen["before"] = {name: _array(value) for name, value in names.items()}
                seen["moments"] = _moments(optimizer, names)

        def on_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            seen["grad"] = {n: None if v.grad is None else _array(v.grad) for n, v in names.items()}

    class Trainer(transformers.Trainer):  # type: ignore[misc,name-defined]
        """Batches come in their order, made already."""

        def get_train_dataloader(self) -> Any:
            return torch.utils.data.DataLoader(batches, batch_size=None)

        def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
            seen.pop("logits", None)
            found = super().compute_loss(*args, **kwargs)
            seen["loss"] = float((found[0] if isinstance(found, tuple) else found).detach())
            return found

    arguments: Any = transformers.TrainingArguments
    trainer = Trainer(
        model=model,
        args=arguments(
            output_dir=folder,
            max_steps=len(batches),
            use_cpu=True,
            learning_rate=1e-2,
            weight_decay=case.weight_decay,
            lr_scheduler_type="constant",
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            seed=case.seed % 2**32,
        ),
        callbacks=[Watched()],
    )
    prepare, loss = model._prepare_eagle_inputs, model._eagle_loss

    def prepared(*args: Any, **kwargs: Any) -> Any:
        seen["base"] = (args[4] if len(args) > 4 else kwargs["base_outputs"]).logits
        return prepare(*args, **kwargs)

    def judged(law: Any, best: Any, logits: Any, loss_mask: Any) -> Any:
        found = loss(law, best, logits, loss_mask)
        if "logits" not in seen:
            # the loop puts the base model's row t + 1 beside the drafter's row t
            seen.update(logits=logits, targets=seen["base"][:, 1:], mask=loss_mask, part=float(found[0].detach()))
        return found

    model._prepare_eagle_inputs, model._eagle_loss = prepared, judged
    trainer.train()
    moments = _moments(trainer.optimizer, names)

    def pairs(of_drafter: bool) -> dict[str, tuple[Rows, Rows]]:
        return {
            name: (seen["before"][name], _array(value))
            for name, value in names.items()
            if name.startswith("eagle_module.") == of_drafter
        }

    drafter, target = pairs(True), pairs(False)
    return TrainingResult(
        loss=seen["loss"],
        drafter=drafter,
        target=target,
        drafter_grad={name: seen["grad"][name] for name in drafter},
        target_grad={name: seen["grad"][name] for name in target},
        target_trainable=tuple(name for name in target if names[name].requires_grad),
        # a state that the step itself made was nothing before it
        optimizer={n: (seen["moments"].get(n, np.zeros_like(after)), after) for n, after in moments.items()},
        draft_logits=_array(seen["logits"]).reshape(-1, VOCABULARY),
        target_logits=_array(seen["targets"]).reshape(-1, VOCABULARY),
        supervise=np.array(seen["mask"].tolist(), dtype=bool).reshape(-1),
        step_loss=seen["part"],
    )


def state_gradient(case: StateGradientCase) -> Flags:
    """Which states the loss of each step depends on, by autograd through the real forward with its real layer."""
    if case.gradient != "flows":
        raise NotApplicable("the fed-back state is never detached")
    torch = package().torch
    steps, length = case.steps, case.steps + 4
    states: list[Any] = []
    losses: list[Any] = []
    with _generators(7):
        model = converted(base_model(VOCABULARY), steps, VOCABULARY).train()
        ids = torch.randint(0, VOCABULARY, (1, length))
        features = torch.randn((1, length, 4 * WIDTH))
    forward, loss = model._eagle_forward, model._eagle_loss

    def recorded(*args: Any, **kwargs: Any) -> Any:
        found = forward(*args, **kwargs)
        states.append(found[1])
        return found

    def judged(*args: Any) -> Any:
        found = loss(*args)
        losses.append(found[0].clone())  # the loop weights its own in place
        return found

    model._eagle_forward, model._eagle_loss = recorded, judged
    model(
        ids,
        base_model_outputs={
            "base_model_hidden_states": features[..., :WIDTH],
            "aux_hidden_states": features[..., WIDTH:],
        },
    )
    reached = np.zeros((steps, steps), dtype=bool)
    for s, part in enumerate(losses):
        gradients = torch.autograd.grad(part, states, retain_graph=True, allow_unused=True)
        reached[s] = [g is not None and bool(torch.any(g != 0)) for g in gradients]
    return reached


def _warm(rng: Any, shape: tuple[int, int]) -> TokenBatch:
    return TokenBatch(
        tokens=rng.integers(0, VOCABULARY, shape),
        valid=np.ones(shape, dtype=bool),
        segment=np.zeros(shape, dtype=np.int64),
        position=np.tile(np.arange(shape[1]), (shape[0], 1)),
        supervise=np.ones(shape, dtype=bool),
    )


def _batch(batch: TokenBatch) -> dict[str, Any]:
    """Each document in a row of its own, padded at its right end."""
    torch = package().torch
    found = samples(batch)
    mask = advanced_mask(batch, found)
    shape = (len(found), batch.tokens.shape[1])
    ids, attention, loss_mask = (np.zeros(shape, dtype=np.int64) for _ in range(3))
    for i, sample in enumerate(found):
        where = (sample.batch, sample.addresses)
        ids[i, : sample.length] = batch.tokens[where]
        attention[i, : sample.length] = 1
        loss_mask[i, : sample.length] = mask[where]
    given = {"input_ids": ids, "attention_mask": attention, "loss_mask": loss_mask}
    return {name: torch.tensor(values) for name, values in given.items()}


def _dumped(base: Any, batch: TokenBatch) -> dict[str, Any]:
    """The batch with the base model's features, as offline training collates them."""
    torch = package().torch
    found = samples(batch)
    shape = batch.tokens.shape
    last, aux = np.zeros((*shape, WIDTH)), np.zeros((*shape, LAYERS * WIDTH))
    for sample in found:
        where = (sample.batch, sample.addresses)
        with torch.no_grad():
            ids = torch.tensor(batch.tokens[where], dtype=torch.long)[None]
            states = base.model(ids, output_hidden_states=True).hidden_states
        last[where] = states[-1][0].tolist()
        aux[where] = torch.cat([state[0] for state in states[1:]], dim=-1).tolist()
    return collated(found, batch.tokens, last, aux, advanced_mask(batch, found), shape[1])


def _moments(optimizer: Any, names: dict[str, Any]) -> dict[str, Rows]:
    held = getattr(optimizer, "optimizer", optimizer).state
    return {
        f"{name}.{key}": _array(value)
        for name, parameter in names.items()
        for key, value in held.get(parameter, {}).items()
    }


def _array(value: Any) -> Rows:
    return np.array(value.detach().double().tolist(), dtype=np.float64)


@contextmanager
def _generators(seed: int) -> Iterator[None]:
    """Torch's global generator on a seed; it and the others, which the trainer seeds, are put back afterwards."""
    torch = package().torch
    python, numpy = random.getstate(), np.random.get_state()
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        logging.disable(disabled)
        random.setstate(python)
        np.random.set_state(numpy)
