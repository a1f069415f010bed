"""Rows and noise by `oracle.fast`, as `adapters.fast` hands them out: arrays become tensors and back, nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from oracle.types import (
    Flags,
    GatherCase,
    GatheredRows,
    NoiseCase,
    NoisySample,
    RolloutRows,
    RolloutRowsCase,
    RowPlan,
    SampleCase,
    SupervisionCase,
    TokenBatch,
)
from oracle.types import Rows as Array

if TYPE_CHECKING:
    from torch import Tensor

COST: Mapping[str, float] = {
    **dict.fromkeys(("soft_rows", "hard_rows", "supervision_at_source", "gather_rows", "rollout_rows"), 2e-4),
    **{"feature_noise": 1e-4, "noisy_sample": 2e-4},
}


class Rows:
    """Rows are addresses and flags, whatever the dtype of features is."""

    dtype = "float64"

    @staticmethod
    def soft_rows(batch: TokenBatch) -> RowPlan:
        """The plan, its visibility made dense."""
        return _plan(_fast().soft_rows(_batch(batch), validate=True))

    @staticmethod
    def hard_rows(batch: TokenBatch) -> RowPlan:
        """The plan, its visibility made dense."""
        return _plan(_fast().hard_rows(_batch(batch), validate=True))

    @staticmethod
    def supervision_at_source(case: SupervisionCase) -> Flags:
        """The sources."""
        mask = _tensor(case.token_mask)
        found: Flags = _fast().supervision_at_source(_batch(case.batch), mask, case.owner, validate=True).cpu().numpy()
        return found

    @classmethod
    def gather_rows(cls, case: GatherCase) -> GatheredRows:
        """The rows, their features in float64."""
        features = cls._numbers(case.features)
        found = _arrays(_fast().gather_rows(_batch(case.batch), features, validate=True), GatheredRows)
        found |= {name: found[name].astype(np.float64) for name in ("feature", "target")}
        return GatheredRows(**found)

    @staticmethod
    def rollout_rows(case: RolloutRowsCase) -> RolloutRows:
        """The nodes."""
        return RolloutRows(**_arrays(_fast().rollout_rows(_batch(case.batch), case.steps, validate=True), RolloutRows))

    @classmethod
    def feature_noise(cls, case: NoiseCase) -> Array:
        """The noise."""
        unit = cls._numbers(case.unit)
        found: Array = _noise().feature_noise(unit, case.length, case.law, validate=True).double().cpu().numpy()
        return found

    @classmethod
    def noisy_sample(cls, case: SampleCase, law: str = "paper") -> NoisySample:
        """The sample; its seed is a generator's. The targets take no part."""
        import torch

        features = cls._numbers(case.features)
        generator = torch.Generator(device=features.device).manual_seed(case.seed)
        features = _noise().noisy_sample(features, law, generator=generator)
        return NoisySample(features.to(torch.float64).cpu().numpy(), np.array(case.targets))

    @classmethod
    def _numbers(cls, values: object) -> Tensor:
        import torch

        return torch.tensor(np.array(values), dtype=getattr(torch, cls.dtype))


def _plan(found: Any) -> RowPlan:
    names = ("batch", "source", "advanced", "target", "label", "supervise", "position")
    vectors = {name: getattr(found, name).cpu().numpy() for name in names}
    return RowPlan(**vectors, visible=found.visibility.dense().cpu().numpy())


def _arrays(found: Any, kind: type) -> dict[str, np.ndarray]:
    import torch

    values = {name: getattr(found, name) for name in kind.__dataclass_fields__}  # type: ignore[attr-defined]
    return {name: (v.to(torch.float64) if v.is_floating_point() else v).cpu().numpy() for name, v in values.items()}


def _batch(batch: TokenBatch) -> Any:
    names = ("tokens", "valid", "segment", "position", "supervise")
    return _fast().TokenBatch(*(_tensor(getattr(batch, name)) for name in names))


def _tensor(values: object) -> Tensor:
    import torch

    return torch.tensor(np.array(values))


def _fast() -> Any:
    from oracle.fast import rows

    return rows


def _noise() -> Any:
    from oracle.fast import noise

    return noise
