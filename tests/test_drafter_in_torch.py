"""The drafter as plain torch modules: in each dtype it lies within the second road's bounds, and these are no dream.

It is said how far the largest error of any case reaches into its bound: a bound that nothing ever comes near would
excuse faults.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from conformance.drafter.asking import ACCUMULATOR
from conformance.drafter.cases import EVERY, LONGER, TWINS
from conformance.roads import drafter as road
from conformance.roads.tape import Rounding
from oracle.types import DrafterCase, DraftRollout

torch: Any = pytest.importorskip("torch")
F = torch.nn.functional
UNITS = {"float64": 2.0**-53, "float32": 2.0**-24, "bfloat16": 2.0**-8}
CASES = (*EVERY, *TWINS, *LONGER)


class Drafter(torch.nn.Module):  # type: ignore[misc]
    """Modules by the names of the state dict, which is loaded strictly; every step runs all rows again."""

    def __init__(self, case: DrafterCase, dtype: Any) -> None:
        super().__init__()
        config: dict[str, Any] = dict(case.config)
        self.eagle1, self.projected = case.variant == "eagle1", case.variant == "eagle3_projected"
        self.feature_first = config.get("fusion_order") == "feature_first"
        self.heads, self.groups = config["num_attention_heads"], config["num_key_value_heads"]
        self.width = config.get("head_dim") or config["hidden_size"] // self.heads
        self.theta = config["rope_theta"]
        for name, values in case.weights.items():
            path, kind = name.rsplit(".", 1)
            if kind == "weight":
                self.place(path, self.module(path, values, f"{path}.bias" in case.weights, config["rms_norm_eps"]))
        self.to(dtype)
        self.load_state_dict({name: torch.from_numpy(values.copy()) for name, values in case.weights.items()})
        self.layer = getattr(self, "midlayer", None) or self.layers.get_submodule("0")

    def module(self, path: str, values: np.ndarray, bias: bool, epsilon: float) -> Any:
        if path == "embed_tokens":
            return torch.nn.Embedding(*values.shape)
        if values.ndim == 1:
            return torch.nn.RMSNorm(len(values), epsilon)
        return torch.nn.Linear(values.shape[1], values.shape[0], bias)

    def place(self, path: str, module: Any) -> None:
        above: Any = self
        *folders, name = path.split(".")
        for folder in folders:
            if not hasattr(above, folder):
                above.add_module(folder, torch.nn.Module())
            above = getattr(above, folder)
        above.add_module(name, module)

    def forward(self, tokens: Any, features: Any, states: Any, positions: Any) -> tuple[Any, Any]:
        embedding, layer = self.embed_tokens(tokens), self.layer
        if self.eagle1:
            fed = torch.cat([features, states])
            hidden = self.fc(torch.cat([fed, embedding] if self.feature_first else [embedding, fed], dim=-1))
            seen = hidden
        else:
            hidden = torch.cat([self.fc(features), states])
            seen = torch.cat([layer.input_layernorm(embedding), layer.hidden_norm(hidden)], dim=-1)
            seen = self.input_projection(seen) if self.projected else seen
        hidden = hidden + self.attend(seen, positions)
        normed = layer.post_attention_layernorm(hidden)
        hidden = hidden + layer.mlp.down_proj(F.silu(layer.mlp.gate_proj(normed)) * layer.mlp.up_proj(normed))
        return hidden[-1], self.lm_head(hidden[-1] if self.eagle1 else self.norm(hidden[-1]))

    def attend(self, seen: Any, positions: Any) -> Any:
        inner = self.layer.self_attn

        def split(values: Any, count: int) -> Any:
            return values.view(len(seen), count, self.width).transpose(0, 1)

        exact = torch.float64 if seen.dtype == torch.float64 else torch.float32
        exponent = torch.arange(0, self.width, 2, dtype=exact) / self.width
        angle = positions.to(exact)[:, None] / self.theta**exponent
        angle = torch.cat([angle, angle], dim=-1)
        cosine, sine = angle.cos().to(seen.dtype), angle.sin().to(seen.dtype)

        def turn(values: Any) -> Any:
            one, other = values.chunk(2, dim=-1)
            return values * cosine + torch.cat([-other, one], dim=-1) * sine

        query, key = turn(split(inner.q_proj(seen), self.heads)), turn(split(inner.k_proj(seen), self.groups))
        value = split(inner.v_proj(seen), self.groups)
        key, value = (v.repeat_interleave(self.heads // self.groups, dim=0) for v in (key, value))
        mixed = F.scaled_dot_product_attention(query[None], key[None], value[None], is_causal=True)[0]
        return inner.o_proj(mixed.transpose(0, 1).reshape(len(seen), -1))


def in_torch(case: DrafterCase, dtype: str) -> DraftRollout:
    kind = getattr(torch, dtype)
    with torch.no_grad():
        model = Drafter(case, kind)
        features = torch.from_numpy(case.features).to(kind)
        states: list[Any] = []
        logits: list[Any] = []
        for step in range(len(case.rollout_tokens) + 1):
            tokens = torch.from_numpy(np.concatenate([case.tokens, case.rollout_tokens[:step]]))
            ahead = case.positions[-1] + 1 + np.arange(step)
            positions = torch.from_numpy(np.concatenate([case.positions, ahead]))
            fed = torch.stack(states) if states else torch.zeros(0, case.config["hidden_size"], dtype=kind)
            state, row = model(tokens, features, fed, positions)
            states.append(state)
            logits.append(row)
        return DraftRollout(*(torch.stack(rows).to(torch.float64).numpy() for rows in (logits, states)))


def reaches(case: DrafterCase, dtype: str) -> tuple[float, float]:
    """The largest error as a share of its bound, and the largest bound in units, relative to the largest entry."""
    found = in_torch(case, dtype)
    rounding = Rounding(UNITS[dtype], UNITS[ACCUMULATOR.get(dtype, dtype)])
    shares, sizes = [], []
    for i, step in enumerate(road.rollout(case, rounding, found.states)):
        for given, right, off in (
            (found.logits[i], step.logits, step.logits_off),
            (found.states[i], step.state, step.state_off),
        ):
            shares.append(float((np.abs(given - right) / off).max()))
            sizes.append(float(off.max() / np.abs(right).max() / UNITS[dtype]))
    return max(shares), max(sizes)


@pytest.mark.parametrize("dtype", UNITS)
def test_torch_lies_within_the_bounds(dtype: str) -> None:
    found = [reaches(case, dtype) for case in CASES]
    shares, sizes = zip(*found)
    assert max(shares) <= 1
    # bounds hold for any order of summation and the worst signs: torch comes within a factor of 100 of one of them
    assert max(shares) > 0.01, f"bounds are {1 / max(shares):.0f} times what torch is off"
    # relative to the largest entry: half of the cases tell differences of 3e-4 apart in float32, and all of 3e-3
    assert np.median(sizes) * UNITS["float32"] < 3e-4
    assert max(sizes) * UNITS["float32"] < 3e-3


@pytest.mark.parametrize("dtype", UNITS)
def test_weights_that_are_held_exactly_have_narrower_bounds(dtype: str) -> None:
    """And torch, which casts such weights without rounding, lies within them."""
    kind = getattr(torch, dtype)
    rounding = Rounding(UNITS[dtype], UNITS[ACCUMULATOR.get(dtype, dtype)])
    for case in CASES:
        held = {name: torch.from_numpy(values).to(kind).double().numpy() for name, values in case.weights.items()}
        case = dataclasses.replace(case, weights=held)
        found = in_torch(case, dtype)
        for i, (narrow, wide) in enumerate(
            zip(road.rollout(case, rounding, found.states, True), road.rollout(case, rounding, found.states))
        ):
            assert (narrow.logits_off < wide.logits_off).all() and (narrow.state_off < wide.state_off).all()
            assert (np.abs(found.logits[i] - narrow.logits) <= narrow.logits_off).all()
            assert (np.abs(found.states[i] - narrow.state) <= narrow.state_off).all()


@pytest.mark.parametrize("case", EVERY[:3], ids=lambda c: c.variant)
def test_a_fault_lies_outside_of_the_bounds(case: DrafterCase) -> None:
    """The same module, its weights moved by a thousandth."""
    moved = {name: values * 1.001 for name, values in case.weights.items()}
    found = in_torch(dataclasses.replace(case, weights=moved), "float32")
    step = road.rollout(case, Rounding(UNITS["float32"], UNITS["float32"]), found.states)[0]
    assert (np.abs(found.logits[0] - step.logits) > step.logits_off).any()
