"""How far rounding may move a result: a computation on a tape, and what each of its roundings does to its outputs.

Every operation keeps its value in float64 and `off`, the most that its own roundings can add to each entry in an
implementation's dtype: a stored result is off by one unit, a sum of n products, in whatever order, by n units of
its accumulator and one of the dtype (Higham, Accuracy and Stability, §3.1). Going back from the outputs gives the
derivative of each by each entry; their magnitudes, weighed by `off` and added up, bound the error to first order, and
`SECOND_ORDER` covers the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Back = Callable[[Array], Array]
"""Derivatives by an operation's value, [outputs, *value], → those by one of its operands."""
FUNCTION = 4
"""Units that exp, a square root and a rotation's cosine are granted: libraries promise one to two."""
SECOND_ORDER = 2.0


@dataclass(frozen=True)
class Rounding:
    """unit: roundoff of what is stored. accumulator: that of sums of products."""

    unit: float
    accumulator: float

    def sum_of(self, terms: int) -> float:
        """What a sum of so many terms, stored once, is off by, relative to the sum of their magnitudes."""
        return terms * self.accumulator + self.unit


EXACT = Rounding(0.0, 0.0)


@dataclass(eq=False)
class Node:
    """One operation: its value, what its own rounding adds, and the ways back to its operands.

    off: in the value's shape, or one number for all entries. rounds: whether it, or what it is made of, rounds at all;
    weights that an implementation holds exactly do not.
    """

    value: Array
    off: Array | float
    back: Sequence[tuple[Node, Back]] = ()
    rounds: bool = True


@dataclass
class Tape:
    """Operations in the order in which they were done."""

    rounding: Rounding
    nodes: list[Node] = field(default_factory=list)

    def bound(self, output: Node) -> Array:
        """How far each entry of `output` may be off, in its shape."""
        count = output.value.size
        by: dict[int, Array] = {id(output): np.eye(count).reshape(count, *output.value.shape)}
        total = np.zeros(count)
        for node in reversed(self.nodes):
            derivative = by.pop(id(node), None)
            if derivative is None:
                continue
            total += (np.abs(derivative) * node.off).reshape(count, -1).sum(axis=1)
            for operand, back in node.back:
                if not operand.rounds:
                    continue
                passed = back(derivative)
                by[id(operand)] = by[id(operand)] + passed if id(operand) in by else passed
        return np.asarray(SECOND_ORDER * total.reshape(output.value.shape))

    # ---- operations

    def given(self, values: object, exact: bool = False) -> Node:
        """Numbers that are handed over, and cast once; `exact` ones are the implementation's own."""
        value = np.asarray(values, dtype=np.float64)
        return self._node(value, 0.0 if exact else self.rounding.unit * np.abs(value))

    def linear(self, rows: Node, weight: Node, bias: Node | None = None) -> Node:
        """rows [n, k] · weightᵀ [k, m] + bias [m]."""
        value = rows.value @ weight.value.T
        off: Array | float = 0.0
        if self.rounding != EXACT:  # large weights are not copied for nothing
            off = self.rounding.sum_of(rows.value.shape[1]) * (np.abs(rows.value) @ np.abs(weight.value).T)
        back: list[tuple[Node, Back]] = [
            # as one product: weights are read once, and not once an output
            (rows, lambda d: (d.reshape(-1, d.shape[2]) @ weight.value).reshape(*d.shape[:2], -1)),
            (weight, lambda d: np.einsum("onm,nk->omk", d, rows.value)),
        ]
        found = self._node(value, off, back)
        return found if bias is None else self.add(found, self.spread(bias, len(value)))

    def times(self, one: Node, two: Node) -> Node:
        """one [n, k] @ two [k, m]."""
        off = self.rounding.sum_of(one.value.shape[1]) * (np.abs(one.value) @ np.abs(two.value))
        back: list[tuple[Node, Back]] = [
            (one, lambda d: d @ two.value.T),
            (two, lambda d: np.einsum("onm,nk->okm", d, one.value)),
        ]
        return self._node(one.value @ two.value, off, back)

    def add(self, one: Node, two: Node) -> Node:
        value = one.value + two.value
        return self._node(value, self.rounding.unit * np.abs(value), [(one, lambda d: d), (two, lambda d: d)])

    def multiply(self, one: Node, two: Node) -> Node:
        value = one.value * two.value
        back: list[tuple[Node, Back]] = [(one, lambda d: d * two.value), (two, lambda d: d * one.value)]
        return self._node(value, self.rounding.unit * np.abs(value), back)

    def scale(self, one: Node, factor: float) -> Node:
        """The factor is rounded, too."""
        value = one.value * factor
        return self._node(value, 2 * self.rounding.unit * np.abs(value), [(one, lambda d: d * factor)])

    def silu(self, one: Node) -> Node:
        """x / (1 + exp(−x))."""
        half = 1 / (1 + np.exp(-one.value))
        value = one.value * half
        slope = half * (1 + one.value * (1 - half))
        # the exponent's rounding moves exp(−x) by |x| units; the quotient by (1 − half) of that
        units = FUNCTION + 2 + np.abs(one.value) * (1 - half)
        return self._node(value, self.rounding.unit * units * np.abs(value), [(one, lambda d: d * slope)])

    def rms_norm(self, rows: Node, weight: Node, epsilon: float) -> Node:
        """rows [n, k] / sqrt(mean of squares + epsilon) · weight [k]."""
        width = rows.value.shape[1]
        inverse = 1 / np.sqrt(np.mean(rows.value**2, axis=1, keepdims=True) + epsilon)
        plain = rows.value * inverse
        value = plain * weight.value

        def by_rows(d: Array) -> Array:
            inner = d * weight.value
            return np.asarray(inverse * (inner - plain * np.mean(inner * plain, axis=2, keepdims=True)))

        units = self.rounding.sum_of(width) / 2 + (FUNCTION + 4) * self.rounding.unit
        back: list[tuple[Node, Back]] = [(rows, by_rows), (weight, lambda d: (d * plain).sum(axis=1))]
        return self._node(value, units * np.abs(value), back)

    def softmax(self, scores: Node, seen: NDArray[np.bool_]) -> Node:
        """exp(x) / Σ exp(x) along the rows [n, m] over what is `seen`."""
        top = np.max(np.where(seen, scores.value, -np.inf), axis=1, keepdims=True)
        distance = np.where(seen, top - scores.value, 0.0)
        power = np.where(seen, np.exp(-distance), 0.0)
        value = power / power.sum(axis=1, keepdims=True)
        exponent = (distance + FUNCTION) * self.rounding.unit
        mean = (value * exponent).sum(axis=1, keepdims=True)
        units = exponent + mean + self.rounding.sum_of(scores.value.shape[1]) + self.rounding.unit
        back: list[tuple[Node, Back]] = [(scores, lambda d: value * (d - (d * value).sum(axis=2, keepdims=True)))]
        return self._node(value, units * value, back)

    def rotate(self, rows: Node, angle: Array) -> Node:
        """rows [n, width], entry i with entry i + width / 2 as a complex number, turned by angle [n, width / 2]."""
        half = angle.shape[1]

        def turned(values: Array, by: Array) -> Array:
            number = (values[..., :half] + 1j * values[..., half:]) * np.exp(1j * by)
            return np.concatenate([number.real, number.imag], axis=-1)

        magnitude = np.abs(rows.value[:, :half]) + np.abs(rows.value[:, half:])
        # angles are computed in the accumulator's dtype at least: a product and a power
        units = (FUNCTION + 2) * self.rounding.unit + 2 * FUNCTION * self.rounding.accumulator * np.abs(angle)
        off = np.concatenate([units * magnitude] * 2, axis=1)
        return self._node(turned(rows.value, angle), off, [(rows, lambda d: turned(d, -angle))])

    # ---- moving numbers, without rounding

    def spread(self, one: Node, count: int) -> Node:
        """A vector as `count` rows."""
        value = np.broadcast_to(one.value, (count, *one.value.shape))
        return self._node(value, 0.0, [(one, lambda d: d.sum(axis=1))])

    def join(self, parts: Sequence[Node], axis: int) -> Node:
        """Side by side (axis 1) or one below the other (axis 0)."""
        ends = np.cumsum([0, *(p.value.shape[axis] for p in parts)])
        back: list[tuple[Node, Back]] = [
            (part, lambda d, a=a, b=b: np.take(d, range(a, b), axis=axis + 1))  # type: ignore[misc]
            for part, a, b in zip(parts, ends[:-1].tolist(), ends[1:].tolist())
        ]
        return self._node(np.concatenate([p.value for p in parts], axis=axis), 0.0, back)

    def take(self, one: Node, places: Sequence[int], axis: int = 0) -> Node:
        """Some rows (axis 0) or columns (axis 1), in that order."""

        def back(d: Array) -> Array:
            found = np.zeros((len(d), *one.value.shape))
            target, source = np.moveaxis(found, axis + 1, 0), np.moveaxis(d, axis + 1, 0)
            np.add.at(target, np.asarray(places, dtype=np.int64), source)
            return found

        return self._node(np.take(one.value, places, axis=axis), 0.0, [(one, back)])

    def transpose(self, one: Node) -> Node:
        return self._node(one.value.T, 0.0, [(one, lambda d: d.transpose(0, 2, 1))])

    def _node(self, value: Array, off: Array | float, back: Sequence[tuple[Node, Back]] = ()) -> Node:
        rounds = any(operand.rounds for operand, _ in back) or bool(np.any(off))
        node = Node(np.asarray(value), off, back, rounds)
        self.nodes.append(node)
        return node
