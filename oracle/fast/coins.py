"""Coins that belong to a request and a place in it, and not to the batch that they are spent in.

A coin is a hash of (seed, request, position, draw): `request` names a request for good, `position` is where its round
begins, as the number of tokens before it, and `draw` is the node that spends the coin. So whoever shares a batch, in
which order and on which device, changes nothing, and nothing has to be stored between rounds. The hash is the finaliser
of SplitMix64 (Steele, Lea and Flood 2014), one absorbed number after another, in 64-bit integers that wrap.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from oracle.errors import BadInput
from oracle.fast.trees import ids, whole

FRONTIER = -1
"""The draw that picks the frontier token; node i spends draw i."""
DRAFTS = 1 << 32
"""Added to a node that is drafted, whose coin is none that verifies it."""

_WORD = (1 << 64) - 1
_SCALE = 2.0**-53
_GAMMA, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


class Coins(NamedTuple):
    """Uniforms in [0, 1): accept [B, N], spent when a node is tested, and frontier [B]; float64 or float32."""

    accept: Tensor
    frontier: Tensor


def coins(seed: int, requests: Tensor, nodes: int, positions: Tensor | None = None) -> Coins:
    """The coins of a round of each request, float64 on the device of `requests`.

    requests: int64 [B]. positions: int64 [B], None = 0. nodes: N. Raises `BadInput`.
    """
    hashed = _absorbed(seed, requests, positions).unsqueeze(-1)
    draws = torch.arange(FRONTIER, whole(nodes, "nodes", 0), device=requests.device)
    found = _uniform(_mixed(hashed + draws))
    return Coins(found[:, 1:], found[:, 0])


def drafting_coins(seed: int, requests: Tensor, nodes: int, positions: Tensor | None = None) -> Tensor:
    """Uniforms [B, N] that draft the nodes of a round: other ones than those that verify them."""
    hashed = _absorbed(seed, requests, positions).unsqueeze(-1)
    return _uniform(_mixed(hashed + (torch.arange(whole(nodes, "nodes", 0), device=requests.device) + DRAFTS)))


def coin(stream: int, draw: int) -> float:
    """One coin of a stream (`stream_of`) in Python's integers: the same as `coins` has there."""
    return (_mix(stream + draw) >> 11) * _SCALE


def stream_of(seed: int, request: int, position: int = 0) -> int:
    """What the coins of one round of one request are hashed from."""
    return _mix(_mix(_seeded(seed) + request) + position)


def _absorbed(seed: int, requests: Tensor, positions: Tensor | None) -> Tensor:
    ids(requests, "requests", (None,))
    if positions is not None:
        ids(positions, "positions", (len(requests),), requests)
    mixed = _mixed(requests + _signed(_seeded(seed)))
    return _mixed(mixed if positions is None else mixed + positions)


def _seeded(seed: int) -> int:
    seed = whole(seed, "seed", 0)
    hashed = _mix(seed)
    while seed > _WORD:
        seed >>= 64
        hashed = _mix(hashed + seed)
    return hashed


def _mix(word: int) -> int:
    """SplitMix64's output at a state."""
    z = (word + _GAMMA) & _WORD
    z = ((z ^ (z >> 30)) * _FIRST) & _WORD
    z = ((z ^ (z >> 27)) * _SECOND) & _WORD
    return z ^ (z >> 31)


def _mixed(words: Tensor) -> Tensor:
    """The same of int64 tensors: sums and products wrap, and shifts have to be made logical."""
    z = words + _signed(_GAMMA)
    z = (z ^ _shifted(z, 30)) * _signed(_FIRST)
    z = (z ^ _shifted(z, 27)) * _signed(_SECOND)
    return z ^ _shifted(z, 31)


def _shifted(words: Tensor, by: int) -> Tensor:
    return (words >> by) & ((1 << (64 - by)) - 1)


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def _uniform(words: Tensor) -> Tensor:
    return _shifted(words, 11).to(torch.float64) * _SCALE


def requests_of(given: Tensor | None, batch: int, device: torch.device, field: str) -> Tensor:
    """Numbers of B requests; None counts them. Raises `BadInput`."""
    if given is None:
        return torch.arange(batch, device=device)
    if ids(given, field, (batch,)).device.type != device.type:
        raise BadInput(field, (), f"is on {device}", str(given.device))
    return given
