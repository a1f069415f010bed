"""The smallest release: sizes and numbers written out, so that golden vectors are the same on every platform."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from conformance.manifest.filing import Tensor, tensor
from conformance.manifest.releases import Config, Maker, Tensors


class Small(Maker):
    """Draws nothing: sizes and numbers are written out, and most of the target's layers are left to its configuration.

    Every number is an odd fraction of 128, and so the same in every dtype.
    """

    def __init__(self) -> None:
        super().__init__(0)
        self.heads, self.width, self.hidden, self.inner = 2, 3, 4, 5
        self.vocabulary, self.layers, self.theta, self.longest = 19, 8, 10_000.0, 96
        self._made = 0

    def _values(self, least: int, most: int, shape: Sequence[int]) -> np.ndarray:
        size = math.prod(shape)
        self._made += 1
        steps = (np.arange(size) * 5 + self._made * 7) % (most - least) + least
        return (2 * steps + 1).reshape(shape) / 128

    def matrix(self, dtype: str, *shape: int) -> Tensor:
        values = self._values(4, 31, shape)
        return tensor(np.where(np.indices(shape).sum(axis=0) % 3 == 1, -values, values), dtype)

    def gain(self, dtype: str, size: int) -> Tensor:
        return tensor(self._values(48, 79, (size,)), dtype)

    def ids(self) -> list[int]:
        return [2, 3, 6, 7, 11, 14, 16]

    def target(self, dtype: str) -> tuple[Tensors, Config]:
        wanted = {
            "model.layers.0.mlp.gate_proj.weight": (self.inner, self.hidden),
            "model.layers.1.input_layernorm.weight": (self.hidden,),
            "model.layers.1.mlp.up_proj.weight": (self.inner, self.hidden),
            "model.layers.2.input_layernorm.weight": (self.hidden,),
            "model.layers.2.self_attn.o_proj.weight": (self.hidden, self.heads * self.width),
            "model.norm.weight": (self.hidden,),
        }
        held = {
            name: self.matrix(dtype, *shape) if len(shape) > 1 else self.gain(dtype, *shape)
            for name, shape in wanted.items()
        }
        for name in ("model.embed_tokens.weight", "lm_head.weight"):
            held[name] = self.matrix(dtype, self.vocabulary, self.hidden)
        config = {"architectures": ["LlamaForCausalLM"], **self.settings(dtype), "num_hidden_layers": self.layers}
        return dict(sorted(held.items())), config
