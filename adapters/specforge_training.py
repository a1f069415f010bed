"""SpecForge's training step on a tiny model: its `TrainerCore`, strategy, backend and optimizer, unwrapped."""

from __future__ import annotations

from typing import Any

from adapters import eagle3_training as tiny
from adapters.specforge_engine import HIDDEN, collated, draft_model, specforge, target_head
from oracle.types import TrainingCase, TrainingResult


def training_step(case: TrainingCase) -> TrainingResult:
    """Warm steps, then the batch of the case, each a `TrainerCore.train_step` that ends in an optimizer step."""
    sf = specforge()
    torch = sf.torch
    work = tiny.work(case, HIDDEN)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(case.seed)
        draft = draft_model(tiny.VOCABULARY)
    head = target_head(torch.nn.Linear(HIDDEN, tiny.VOCABULARY, bias=False))
    with torch.no_grad():
        draft.embed_tokens.weight.copy_(torch.tensor(work.target.embedding))
        head.fc.weight.copy_(torch.tensor(work.target.head))
    draft.freeze_embedding()
    model = sf.model.OnlineEagle3Model(draft, length=tiny.STEPS)
    backend = sf.backend.FSDPTrainingBackend(
        sf.backend.ParallelConfig(),
        optimizer_factory=lambda trained: sf.optimizer.BF16Optimizer(
            trained,
            lr=tiny.RATE,
            weight_decay=case.weight_decay,
            total_steps=100,
            warmup_ratio=0.0,
            lr_scheduler="constant",
        ),
    )
    backend.prepare_model(model, wrap=False, optimizer_target=draft)
    core = sf.controller.TrainerCore(sf.strategy.Eagle3TrainStrategy(model, target_head=head), backend)
    own, taken = tiny.split(list(draft.named_parameters()))
    frozen = taken | {f"head.{name}": tensor for name, tensor in head.named_parameters()}
    masters = dict(
        zip((name for name, p in own.items() if p.requires_grad), backend.optimizer.fp32_params, strict=True)
    )
    adam = backend.optimizer.optimizer
    seen = tiny.Observed()
    for batch in work.batches[:-1]:
        core.train_step(collated(batch))
    seen.before, seen.target_before = tiny.numbers(own), tiny.numbers(frozen)
    seen.state_before = tiny.moments(adam, masters)
    _watch(model, backend, head, seen, own, frozen)
    seen.loss = core.train_step(collated(work.batches[-1])).loss
    seen.after, seen.target_after = tiny.numbers(own), tiny.numbers(frozen)
    seen.state_after = tiny.moments(adam, masters)
    seen.target_trainable = tiny.trainable(frozen)
    return seen.result()


def _watch(
    model: Any, backend: Any, head: Any, seen: tiny.Observed, own: dict[str, Any], frozen: dict[str, Any]
) -> None:
    """Have the next step noted: its gradients before the optimizer drops them, and what its first loss was given."""
    step, losses = backend.step, model._acc_and_loss

    def noted_step() -> Any:
        seen.gradient, seen.target_gradient = tiny.gradients(own), tiny.gradients(frozen)
        return step()

    def noted_losses(**arguments: Any) -> Any:
        # copied first: the kernel's backward writes the gradient over the logits
        logits = tiny.rows(arguments["logits"])
        found = losses(**arguments)
        if seen.draft_logits is None:
            seen.draft_logits = logits
            seen.supervise = arguments["loss_mask"].reshape(-1).numpy() != 0
            seen.step_loss = float(found[2].detach())
        return found

    backend.step, model._acc_and_loss = noted_step, noted_losses
    head.register_forward_hook(lambda module, inputs, output: setattr(seen, "target_logits", tiny.rows(output)))
