"""vLLM's V1 sampling constraints: what temperature, top-k and top-p make of the rows that drafts are verified against.

The code under test is `vllm.v1.sample.rejection_sampler.apply_sampling_constraints`, called as
`RejectionSampler.forward` calls it, and the softmax in float32 that `rejection_sample` takes of its result.

What is converted, and nothing else:
- rows to a batch: float32 logits; neighbours with equal parameters are the drafts of one request. A request that
  would have one draft gets its row twice, and the second is read: so every request has several rows that its
  parameters have to reach.
- parameters to what the model runner's input batch holds: temperature and top_p in float32; top_k in int32, V where it
  is off or above V; no top_k where it is off for all, no top_p where it is 1 for all. The limits that vLLM's API puts
  on a temperature are left out.

Not applicable: temperature 0, whose requests are verified by argmax and never have probabilities, and min_p above 0:
vLLM refuses it beside speculative decoding, and nothing on the way to the rows of drafts applies it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from adapters.interface import NotApplicable
from adapters.vllm_engine import Engine, sampling_metadata
from oracle.types import WarpCase

_LONGEST = 128
"""Drafts that vLLM lets one request have."""


def warp(engine: Engine, case: WarpCase) -> np.ndarray:
    """The rows as `rejection_sample` reads them, float32 of the shape of the logits."""
    import torch

    logits = np.asarray(case.logits)
    rows = logits.reshape(-1, logits.shape[-1]).astype(np.float32)
    count, vocabulary = rows.shape
    temperature, top_k, top_p, min_p = (
        np.broadcast_to(np.asarray(values), count) for values in (case.temperature, case.top_k, case.top_p, case.min_p)
    )
    if np.any(temperature == 0):
        raise NotApplicable("a request of temperature 0 is verified by argmax: its rows never become probabilities")
    if np.any(min_p > 0):
        raise NotApplicable("min_p is refused beside speculative decoding, and does not reach the rows of drafts")
    requests: list[list[int]] = []
    for i in range(count):
        same = i > 0 and all(values[i] == values[i - 1] for values in (temperature, top_k, top_p))
        if same and len(requests[-1]) < _LONGEST:
            requests[-1].append(i)
        else:
            requests.append([i])
    first = np.array([members[0] for members in requests])
    drafts = [members * 2 if len(members) == 1 else members for members in requests]
    flat = [i for members in drafts for i in members]
    limits = np.where((top_k > 0) & (top_k < vocabulary), top_k, vocabulary)[first]
    masses = top_p[first]
    metadata = dataclasses.replace(
        sampling_metadata(torch, drafts, {}, greedy=False),
        temperature=_tensor(torch, temperature[first], np.float32),
        top_k=_tensor(torch, limits, np.int32) if np.any(limits < vocabulary) else None,
        top_p=_tensor(torch, masses, np.float32) if np.any(masses < 1) else None,
    )
    ends = np.cumsum([len(members) for members in drafts])
    with torch.inference_mode(), np.errstate(all="ignore"):
        constrained = engine.module.apply_sampling_constraints(
            torch.from_numpy(rows[flat]), _tensor(torch, ends, np.int32), metadata
        )
        laws: np.ndarray = constrained.softmax(dim=-1, dtype=torch.float32).numpy()
    last = {i: place for place, i in enumerate(flat)}
    return laws[[last[i] for i in range(count)]].reshape(logits.shape)


def _tensor(torch: Any, values: np.ndarray, dtype: Any) -> Any:
    return torch.from_numpy(values.astype(dtype))
