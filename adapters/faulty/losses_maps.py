"""Losses with one fault each: draft vocabularies, and conventions at work."""

from __future__ import annotations

import numpy as np

from adapters.faulty.loss_steps import Array, Losses
from oracle.types import DraftMapCase, RolloutLossCase, StateGradientCase

# ---- maps


class OffsetReadAsAbsolute(Losses):
    """Takes the entries of an offset map for target ids (SafeAILab/EAGLE#222)."""

    refutes = "LOSSES-801"

    @classmethod
    def draft_to_target(cls, case: DraftMapCase) -> Array:
        return case.d2t.copy()


class CountsOffsetsFromOne(Losses):
    """Adds the entries of an offset map to draft ids that start at one."""

    refutes = "LOSSES-801"

    @classmethod
    def draft_to_target(cls, case: DraftMapCase) -> Array:
        ids = super().draft_to_target(case)
        return ids + 1 if case.convention == "offset" else ids


class MapFromTheMarks(Losses):
    """Makes the map from t2d, in ascending order, and does not look at d2t."""

    refutes = "LOSSES-802"

    @classmethod
    def draft_to_target(cls, case: DraftMapCase) -> Array:
        ids = super().draft_to_target(case)
        return ids if case.t2d is None else np.flatnonzero(case.t2d)


class IdentityWhereWidthsAreEqual(Losses):
    """Takes a map of equal widths for the identity (alibaba/rtp-llm#1311)."""

    refutes = "LOSSES-802"

    @classmethod
    def draft_to_target(cls, case: DraftMapCase) -> Array:
        ids = super().draft_to_target(case)
        return np.arange(len(ids)) if case.t2d is not None and len(case.t2d) == len(ids) else ids


class MarksAreNotRead(Losses):
    """Does not compare t2d with what d2t maps to."""

    refutes = "LOSSES-803"

    @classmethod
    def check_map(cls, ids: Array, case: DraftMapCase) -> None:
        super().check_map(ids, DraftMapCase(case.d2t, None, case.convention))


class TwinsAreAllowed(Losses):
    """Lets two draft ids stand for one target id."""

    refutes = "LOSSES-803"

    @classmethod
    def check_map(cls, ids: Array, case: DraftMapCase) -> None:
        if (ids < 0).any() or (case.t2d is not None and set(ids.tolist()) != set(np.flatnonzero(case.t2d).tolist())):
            raise ValueError("d2t leaves what t2d marks")


# ---- conventions


class EpsilonInHalf(Losses):
    """Keeps its epsilon in float16, which holds no 1e-5."""

    refutes = "LOSSES-1101"

    @classmethod
    def epsilon(cls, case: RolloutLossCase, s: int) -> float:
        return float(np.float16(case.denominator_epsilon))


class WeightsInHalf(Losses):
    """Keeps the step weights that it is given in float16."""

    refutes = "LOSSES-1101"

    @classmethod
    def step_weights(cls, case: RolloutLossCase) -> list[float]:
        weights = super().step_weights(case)
        return weights if case.step_weights is None else [float(np.float16(w)) for w in weights]


class FlowsAlthoughDetached(Losses):
    """Lets gradients flow to earlier states, whatever is asked."""

    refutes = "LOSSES-1102"

    @classmethod
    def state_gradient(cls, case: StateGradientCase) -> Array:
        return super().state_gradient(StateGradientCase(case.steps, "flows"))


class NoGradientToTheFirstState(Losses, conventions={"rollout_gradient": "flows"}):
    """Stops gradients at the state of the first step, and declares that they flow."""

    refutes = "LOSSES-1102"

    @classmethod
    def state_gradient(cls, case: StateGradientCase) -> Array:
        reached = super().state_gradient(case).copy()
        reached[1:, 0] = False
        return reached
