"""A whole training step, seen from outside: parameters, gradients and the optimizer's state before and after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from oracle.types.arrays import Flags, Ids, Rows
from oracle.types.rows import TokenBatch

GRADIENTS = ("flows", "detached")


@dataclass(frozen=True)
class Provenance:
    """What cached features were computed from; features of another one are stale labels."""

    target_revision: str
    layer: str
    tokenizer: str


@dataclass(frozen=True, eq=False)
class TrainingCase:
    """One step of a trainer on a tiny random model, made from `seed`.

    batch: the tokens and their supervision. warm_steps: supervised steps taken on other data before it, so that the
    optimizer has moments. weight_decay: of the optimizer. cached_for: what the features of the batch were computed
    from; trained_for: what the trainer is set up for; None where nothing is cached.
    """

    batch: TokenBatch
    seed: int
    warm_steps: int = 1
    weight_decay: float = 0.01
    cached_for: Provenance | None = None
    trained_for: Provenance | None = None


@dataclass(frozen=True, eq=False)
class TrainingResult:
    """What the step did.

    loss: None where it was skipped. drafter, target: parameter name → (before, after). drafter_grad: parameter name →
    gradient of the step, None where it got none. target_grad: the same of the target's parameters. target_trainable:
    names of target parameters that may be trained. optimizer: name of a state → (before, after).
    draft_logits [R, Vd] and target_logits [R, V]: the rows of step 0 as the loss got them, `supervise` [R] theirs,
    `draft_to_target` [Vd] their vocabulary, None where it is the target's, and `step_loss` what the trainer made of
    them; None where it does not show them.
    """

    loss: float | None
    drafter: Mapping[str, tuple[Rows, Rows]]
    target: Mapping[str, tuple[Rows, Rows]]
    drafter_grad: Mapping[str, Rows | None]
    target_grad: Mapping[str, Rows | None]
    target_trainable: tuple[str, ...]
    optimizer: Mapping[str, tuple[Rows, Rows]]
    draft_logits: Rows | None = None
    target_logits: Rows | None = None
    supervise: Flags | None = None
    step_loss: float | None = None
    draft_to_target: Ids | None = None


@dataclass(frozen=True, eq=False)
class StateGradientCase:
    """A rollout of `steps` steps, of whose losses the gradient with respect to the fed-back states is asked.

    gradient: "flows" (through the states that later steps are fed) or "detached".
    """

    steps: int
    gradient: str = "flows"
