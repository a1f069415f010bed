"""AngelSlim's training step on a tiny model: `OfflineEagle3Trainer.train` with its own data loader and optimizer."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np

from adapters import eagle3_training as tiny
from adapters.angelslim_engine import HIDDEN, angelslim, draft_model, record
from oracle.types import TrainingCase, TrainingResult


def training_step(case: TrainingCase) -> TrainingResult:
    """A run of the warm steps and one more, whose batch is that of the case."""
    a = angelslim()
    torch = a.torch
    work = tiny.work(case, HIDDEN)
    torch.default_generator.manual_seed(case.seed)
    draft = draft_model(tiny.VOCABULARY, np.ones(tiny.VOCABULARY, dtype=bool))
    head = a.head.TargetHead(torch.nn.Linear(HIDDEN, tiny.VOCABULARY, bias=False))
    with torch.no_grad():
        draft.embed_tokens.weight.copy_(torch.tensor(work.target.embedding))
        head.lm_head.weight.copy_(torch.tensor(work.target.head))
    draft.freeze_embed_weights()
    own, taken = tiny.split(list(draft.named_parameters()))
    frozen = taken | {f"head.{name}": tensor for name, tensor in head.named_parameters()}
    seen = tiny.Observed()
    with tempfile.TemporaryDirectory() as place:
        trainer = a.offline.OfflineEagle3Trainer(
            draft_model=draft,
            target_head=head,
            length=tiny.STEPS,
            args=_arguments(a, place, case, work),
            train_dataset=[record(*sample) for batch in work.batches for sample in batch],
            data_collator=a.data.DataCollatorWithPadding(),
        )
        trainer.remove_callback(a.transformers.PrinterCallback)
        trainer.add_callback(_observer(a, trainer, case.warm_steps, seen, own, frozen))
        _watch(trainer, draft, seen)
        trainer.train()
    seen.after, seen.target_after = tiny.numbers(own), tiny.numbers(frozen)
    seen.target_trainable = tiny.trainable(frozen)
    return seen.result()


def _arguments(a: Any, place: str, case: TrainingCase, work: tiny.Work) -> Any:
    return a.transformers.TrainingArguments(
        output_dir=place,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        save_strategy="no",
        logging_strategy="no",
        remove_unused_columns=False,
        # batches come as the case has them
        train_sampling_strategy="sequential",
        per_device_train_batch_size=len(work.batches[-1]),
        max_steps=len(work.batches),
        learning_rate=tiny.RATE,
        lr_scheduler_type="constant",
        weight_decay=case.weight_decay,
        seed=case.seed,
    )


def _observer(a: Any, trainer: Any, last: int, seen: tiny.Observed, own: dict[str, Any], frozen: dict[str, Any]) -> Any:
    """A callback that notes the step numbered `last`."""

    def begin(self: Any, args: Any, state: Any, control: Any, **others: Any) -> None:
        if state.global_step == last:
            trainer._train_pending_log.clear()
            seen.before, seen.target_before = tiny.numbers(own), tiny.numbers(frozen)
            seen.state_before = tiny.moments(trainer.optimizer, own)

    def before(self: Any, args: Any, state: Any, control: Any, **others: Any) -> None:
        if state.global_step == last:
            seen.gradient, seen.target_gradient = tiny.gradients(own), tiny.gradients(frozen)

    def after(self: Any, args: Any, state: Any, control: Any, **others: Any) -> None:
        if state.global_step == last:
            seen.state_after = tiny.moments(trainer.optimizer, own)
            seen.step_loss = float(trainer._train_pending_log["train/ploss_0"])

    methods = {"on_step_begin": begin, "on_pre_optimizer_step": before, "on_optimizer_step": after}
    return type("Observer", (a.transformers.TrainerCallback,), methods)()


def _watch(trainer: Any, draft: Any, seen: tiny.Observed) -> None:
    """Have each step noted over the one before it: its loss, and what its first step loss was given."""
    compute_loss, rollout, head = trainer.compute_loss, trainer.draft_model_training_time_test, draft.compute_logits

    def noted_loss(*arguments: Any, **options: Any) -> Any:
        found = compute_loss(*arguments, **options)
        seen.loss = float(found.detach())
        return found

    def noted_rollout(
        input_ids: Any, hidden: Any, attention: Any, positions: Any, target_logits: Any, loss_mask: Any, **more: Any
    ) -> Any:
        seen.draft_logits = None
        seen.target_logits = tiny.rows(target_logits)
        seen.supervise = loss_mask.reshape(-1).numpy() != 0
        return rollout(input_ids, hidden, attention, positions, target_logits, loss_mask, **more)

    def noted_logits(hidden_states: Any) -> Any:
        found = head(hidden_states)
        if seen.draft_logits is None:
            seen.draft_logits = tiny.rows(found)
        return found

    trainer.compute_loss, trainer.draft_model_training_time_test = noted_loss, noted_rollout
    draft.compute_logits = noted_logits
