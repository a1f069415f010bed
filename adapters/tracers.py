"""Tensors that spell their own address: what comes out of a trainer says where it was read.

A code is 1 + b·S + t for address t of batch row b; 0 is left for whatever a trainer fills in, and comes back as −1.
"""

from __future__ import annotations

import numpy as np

from oracle.types import Ids, Rows

FILLER = -1
"""The address of what stands nowhere in the batch: a pad token, a row of zeros."""


def codes(batch: int, length: int) -> Ids:
    """int64 [B, S]: a code for each address. As token ids they need a vocabulary of 1 + B·S."""
    return 1 + np.arange(batch * length, dtype=np.int64).reshape(batch, length)


def features(batch: int, length: int, width: int) -> Rows:
    """float64 [B, S, width]: each entry holds the code of its address; small integers survive any dtype up to 256."""
    return np.repeat(codes(batch, length)[:, :, None], width, axis=2).astype(np.float64)


def address(code: float, batch: int, length: int) -> tuple[int, int]:
    """(batch row, address) of a code; (−1, −1) for a filler. Raises `ValueError` for what is no code."""
    if code == 0:
        return FILLER, FILLER
    whole = round(float(code))
    if whole != code or not 1 <= whole <= batch * length:
        raise ValueError(f"{code} spells no address of a batch of {batch} × {length}")
    return divmod(whole - 1, length)
