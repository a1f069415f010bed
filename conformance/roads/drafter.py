"""The second road to the numeric draft step: whole matrices, no cache, rotations as complex numbers, and bounds.

The oracle goes row by row and keeps keys and values. Here every step runs the whole prefix and rollout again, all rows
at once, on a tape that knows what rounding does to it. An implementation's own states are taken as they are, so that
each step is judged by what it was fed, and bounds do not grow from step to step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from conformance.roads.tape import EXACT, Array, Node, Rounding, Tape
from oracle.types import DrafterCase, Rows


@dataclass(frozen=True, eq=False)
class Step:
    """What is right after one step: logits [Vd] and state [d], and how far each entry may be off.

    The bounds are the dear part, and are computed when they are asked for.
    """

    tape: Tape
    logits_node: Node
    state_node: Node

    @property
    def logits(self) -> Array:
        return np.asarray(self.logits_node.value[0])

    @property
    def state(self) -> Array:
        return np.asarray(self.state_node.value[0])

    @cached_property
    def logits_off(self) -> Array:
        return self._off(self.logits_node)

    @cached_property
    def state_off(self) -> Array:
        return self._off(self.state_node)

    def state_off_at(self, entries: Sequence[int]) -> Array:
        """`state_off` of some entries, [n], at the cost of these alone."""
        return self._off(self.tape.take(self.state_node, entries, axis=1))

    def _off(self, node: Node) -> Array:
        exact = self.tape.rounding == EXACT
        return np.zeros(node.value.shape[1]) if exact else np.asarray(self.tape.bound(node)[0])


def rollout(
    case: DrafterCase, rounding: Rounding = EXACT, fed_back: Rows | None = None, exact_weights: bool = False
) -> list[Step]:
    """The steps of a rollout. fed_back: [≥ T, d], the states that an implementation fed back, where it is judged.

    exact_weights: whether it holds the weights as they are, so that no cast rounds them.
    """
    steps: list[Step] = []
    rollout_tokens = np.asarray(case.rollout_tokens).tolist()
    for count in range(len(rollout_tokens) + 1):
        states = fed_back if fed_back is not None else np.array([step.state for step in steps])
        steps.append(_step(case, rounding, rollout_tokens[:count], states[:count], exact_weights))
    return steps


def chained(case: DrafterCase, rounding: Rounding = EXACT) -> list[Step]:
    """The steps of a rollout on one tape: bounds cover what the roundings of earlier steps do to later ones, too."""
    tape = Tape(rounding)
    layer = _Layer(case, tape, exact_weights=False)
    steps: list[Step] = []
    fed = layer.fused()
    rollout_tokens = np.asarray(case.rollout_tokens).tolist()
    for count in range(len(rollout_tokens) + 1):
        if steps:
            fed = tape.join([fed, steps[-1].state_node], axis=0)
        steps.append(layer.last(fed, rollout_tokens[:count]))
    return steps


def _step(case: DrafterCase, rounding: Rounding, consumed: list[int], states: Array, exact_weights: bool) -> Step:
    """The step that has consumed these rollout tokens, with these states fed back."""
    tape = Tape(rounding)
    layer = _Layer(case, tape, exact_weights)
    fed = layer.fused()
    if consumed:
        fed = tape.join([fed, tape.given(states, exact=True)], axis=0)
    return layer.last(fed, consumed)


class _Layer:
    """The drafter's layer over all rows at once."""

    def __init__(self, case: DrafterCase, tape: Tape, exact_weights: bool) -> None:
        self.case = case
        self.tape = tape
        self.name = "layers.0" if case.variant == "eagle1" else "midlayer"
        self.weights = {name: tape.given(weight, exact_weights) for name, weight in case.weights.items()}
        self.heads = self.whole("num_attention_heads")
        self.groups = self.whole("num_key_value_heads", self.heads)
        self.width = self.whole("head_dim", self.whole("hidden_size") // self.heads)

    def whole(self, name: str, default: int | None = None) -> int:
        value = self.case.config.get(name)
        return int(str(default if value is None else value))

    def linear(self, name: str, rows: Node) -> Node:
        return self.tape.linear(rows, self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias"))

    def norm(self, name: str, rows: Node) -> Node:
        epsilon = float(str(self.case.config["rms_norm_eps"]))
        return self.tape.rms_norm(rows, self.weights[f"{name}.weight"], epsilon)

    def fused(self) -> Node:
        """What stands beside the embeddings of the prefix."""
        fed = self.tape.given(self.case.features)
        return fed if self.case.variant == "eagle1" else self.linear("fc", fed)

    def last(self, fed: Node, consumed: list[int]) -> Step:
        """The step that ends with the last of the rows `fed`; `consumed` are the rollout's tokens among theirs."""
        positions = np.asarray(self.case.positions).tolist()
        positions += [positions[-1] + 1 + i for i in range(len(consumed))]
        rows = self.states(fed, np.asarray(self.case.tokens).tolist() + consumed, positions)
        state = self.tape.take(rows, [len(positions) - 1])
        normed = state if self.case.variant == "eagle1" else self.norm("norm", state)
        return Step(self.tape, self.linear("lm_head", normed), state)

    def states(self, fed: Node, tokens: list[int], positions: list[int]) -> Node:
        """The state of every row; `fed` is what stands beside its embedding."""
        tape = self.tape
        embedding = tape.take(self.weights["embed_tokens.weight"], tokens)
        if self.case.variant == "eagle1":
            order = self.case.config.get("fusion_order", "embedding_first")
            pair = [embedding, fed] if order == "embedding_first" else [fed, embedding]
            residual = seen = self.linear("fc", tape.join(pair, axis=1))
        else:
            residual = fed
            token = self.norm(f"{self.name}.input_layernorm", embedding)
            seen = tape.join([token, self.norm(f"{self.name}.hidden_norm", fed)], axis=1)
            if self.case.variant == "eagle3_projected":
                seen = self.linear("input_projection", seen)
        middle = tape.add(residual, self.attention(seen, positions))
        inner = self.norm(f"{self.name}.post_attention_layernorm", middle)
        gate = tape.silu(self.linear(f"{self.name}.mlp.gate_proj", inner))
        both = tape.multiply(gate, self.linear(f"{self.name}.mlp.up_proj", inner))
        return tape.add(middle, self.linear(f"{self.name}.mlp.down_proj", both))

    def attention(self, seen: Node, positions: list[int]) -> Node:
        tape, width = self.tape, self.width
        query, key, value = (self.linear(f"{self.name}.self_attn.{name}_proj", seen) for name in "qkv")
        theta = float(str(self.case.config.get("rope_theta", 10000.0)))
        angle = np.outer(positions, np.exp(np.log(theta) * np.arange(width // 2) * -2 / width))
        past = np.tril(np.ones((len(positions), len(positions)), dtype=bool))
        mixed = []
        for head in range(self.heads):
            own, shared = (range(i * width, (i + 1) * width) for i in (head, head * self.groups // self.heads))
            turned = tape.transpose(tape.rotate(tape.take(key, shared, axis=1), angle))
            scores = tape.times(tape.rotate(tape.take(query, own, axis=1), angle), turned)
            weights = tape.softmax(tape.scale(scores, width**-0.5), past)
            mixed.append(tape.times(weights, tape.take(value, shared, axis=1)))
        return self.linear(f"{self.name}.self_attn.o_proj", tape.join(mixed, axis=1))
