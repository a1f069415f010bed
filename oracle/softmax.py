"""Softmax and cross-entropy of one row, in float64, with masked tokens at −inf."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from oracle.errors import BadInput
from oracle.types import Rows

Law = list[float]


def logits(row: Rows, field: str, index: tuple[int, ...]) -> Rows:
    """The row, in float64; `BadInput` where it holds NaN or +inf. −inf is a masked token."""
    for v, value in enumerate(row):
        if math.isnan(value) or value == math.inf:
            raise BadInput(field, (*index, v), "a logit that counts is finite or −inf", float(value))
    return row.astype(np.float64)


def finite_vector(row: Rows, field: str, index: tuple[int, ...]) -> Rows:
    """The row, in float64; `BadInput` where it holds something not finite."""
    for i, value in enumerate(row):
        if not math.isfinite(value):
            raise BadInput(field, (*index, i), "a number that counts is finite", float(value))
    return row.astype(np.float64)


def log_sum_exp(row: Sequence[float]) -> float:
    """log Σ exp, shifted by the largest entry; −inf where every entry is."""
    largest = max(row)
    if largest == -math.inf:
        return -math.inf
    return float(largest) + math.log(sum(math.exp(x - largest) for x in row))


def log_softmax(row: Rows) -> Law:
    """log q of a row; −inf throughout where every logit is −inf."""
    norm = log_sum_exp(row.tolist())
    return [float(x) - norm if x > -math.inf else -math.inf for x in row]


def softmax(row: Rows, field: str, index: tuple[int, ...]) -> Law:
    """The law of a row; `BadInput` where every logit is −inf."""
    if not np.any(row > -math.inf):
        raise BadInput(field, index, "a row that counts leaves some token unmasked")
    return [math.exp(x) for x in log_softmax(row)]


def cross_entropy(p: Law, log_q: Law) -> float:
    """−Σ p log q, where 0 · (−inf) is 0; +inf where a token of positive mass is impossible to the drafter."""
    return sum((-mass * log for mass, log in zip(p, log_q) if mass > 0), 0.0)


def cross_entropy_gradient(p: Law, log_q: Law) -> Rows:
    """With respect to the logits behind `log_q`: (Σp)·q − p."""
    mass = sum(p)
    return np.array([mass * math.exp(log) - here for here, log in zip(p, log_q)])
