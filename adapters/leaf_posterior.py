"""Driving a real `evaluate_posterior`: drafts as a leaf table, laws as logits [leaves, depth + 1, V], coins let in.

What is converted, and nothing else:
- a tree to its leaf table, root first, −1 right padding, in the order in which `topK_genrate` lays it out: by leaf
  where decoding is greedy, by path (padding last) where tokens are sampled. Behind the drafts stands a token −1 for
  the padding; the laws of the padding are those of the last row, as `tree_logits[0, retrieve_indices]` has them.
- laws to logits: log(p) in float64, rounded to float32, −inf for 0. The processor is that of temperature 1.
- the accepted row and length to `Decision.path`; the frontier is drawn as `update_inference_inputs` draws it,
  `argmax` or `torch.multinomial` of the law that is returned (or by the function itself where it does so).
- coins: `accept[i]` stands in for `random.random()` when node i is tested, which the comparison tells; the frontier
  coin picks the first token v with coin < cumsum(row)[v], after the real `torch.multinomial` has judged the row.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from adapters.interface import NotApplicable
from oracle.types import Coins, Decision, Ids, VerifyCase


@dataclass(frozen=True)
class Posterior:
    """An implementation. names: the namespace that `evaluate_posterior` finds `random` and `torch` in.

    drawn: whether it returns the frontier token itself, rather than the law or the logits.
    """

    torch: Any
    names: dict[str, Any]
    drawn: bool = False

    def processor(self) -> Any:
        """Its logits processor at temperature 1."""
        return self.names["prepare_logits_processor"](temperature=1.0)

    def call(self, logits: Any, candidates: Any, processor: Any) -> tuple[int, int, Any]:
        """Accepted row and number of drafts, and what the frontier comes from."""
        best, accepted, last = self.names["evaluate_posterior"](logits, candidates, processor)
        return int(best), int(accepted), last


def verify_greedy(posterior: Posterior, cases: Sequence[VerifyCase]) -> list[Decision]:
    """Its mode without a logits processor."""
    answers = []
    for case in cases:
        leaves = leaf_table(tree(case), sampled=False)
        logits, candidates = inputs(posterior.torch, case, leaves)
        best, accepted, last = posterior.call(logits, candidates, None)
        token = last if posterior.drawn else posterior.torch.argmax(last)
        answers.append(decision(leaves, best, accepted, token))
    return answers


def verify_random(posterior: Posterior, cases: Sequence[VerifyCase], seed: int) -> list[Decision]:
    """Its mode with a processor; both generators are seeded once."""
    random.seed(seed)
    posterior.torch.manual_seed(seed)
    return [_sampled(posterior, case, None) for case in cases]


def verify_sampled(posterior: Posterior, cases: Sequence[VerifyCase], coins: Sequence[Coins]) -> list[Decision]:
    """Its mode with a processor, and the coins given."""
    return [_sampled(posterior, case, coin) for case, coin in zip(cases, coins, strict=True)]


def _sampled(posterior: Posterior, case: VerifyCase, coins: Coins | None) -> Decision:
    if case.proposal != "point":
        raise NotApplicable("drafts are the best tokens of the drafter, and their law is a point")
    leaves = leaf_table(tree(case), sampled=True)
    logits, candidates = inputs(posterior.torch, case, leaves)
    with injected(posterior, case, coins):
        best, accepted, last = posterior.call(logits, candidates, posterior.processor())
        token = last if posterior.drawn else posterior.names["torch"].multinomial(last, 1)
    return decision(leaves, best, accepted, token)


def tree(case: VerifyCase) -> list[int]:
    """The parents; `NotApplicable` without drafts, with twins, or with drafts that are no ids."""
    tokens = np.asarray(case.token)
    if tokens.ndim != 1 or (tokens.size and tokens.dtype.kind not in "iu"):
        raise NotApplicable("drafts are a tensor of integer ids")
    above: list[int] = np.asarray(case.parent).tolist()
    if not above:
        raise NotApplicable("a drafter always drafts, so no round is without drafts")
    if len(set(zip(above, tokens.tolist()))) < len(above):
        raise NotApplicable("the children of one parent are the k best tokens, all different")
    return above


def leaf_table(above: Sequence[int], sampled: bool) -> Ids:
    """int64 [leaves, depth + 1], rows of the input with the root at 0, −1 = padding."""
    paths = []
    for leaf in (i for i in range(len(above)) if i not in above):
        path = [leaf + 1]
        while path[-1]:
            path.append(above[path[-1] - 1] + 1)
        paths.append(path[::-1])
    width = max(map(len, paths))
    if sampled:
        paths.sort(key=lambda path: path + [len(above) + 5] * (width - len(path)))
    return np.array([path + [-1] * (width - len(path)) for path in paths], dtype=np.int64)


def inputs(torch: Any, case: VerifyCase, leaves: Ids) -> tuple[Any, Any]:
    """Logits [leaves, depth + 1, V] and candidates [leaves, depth + 1], the root's token 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        rows = np.log(np.asarray(case.target_probs, dtype=np.float64)).astype(np.float32)
    tokens = np.array([0, *np.asarray(case.token).tolist(), -1], dtype=np.int64)
    return torch.from_numpy(rows[leaves]), torch.from_numpy(tokens[leaves])


def decision(leaves: Ids, best: int, accepted: int, token: Any) -> Decision:
    """The accepted rows of a path, and the token after them."""
    return Decision(tuple((leaves[best, 1 : accepted + 1] - 1).tolist()), int(token))


class Walk:
    """Hands out the accept coins: which node is tested next follows from how the last comparison ended."""

    def __init__(self, case: VerifyCase, accept: Any) -> None:
        self._above = np.asarray(case.parent).tolist()
        self._tokens = np.asarray(case.token).tolist()
        self._accept = np.asarray(accept, dtype=np.float64)
        self._node, self._tested = -1, -1

    def random(self) -> float:
        """The coin of the next node: the next sibling of the one tested last, or the first child of the accepted."""
        later = range(self._tested + 1, len(self._above))
        self._tested = next(i for i in later if self._above[i] == self._node and self._tokens[i] != -1)
        return _Coin(self._accept[self._tested], self)

    def accepted(self) -> None:
        """The node tested last is accepted."""
        self._node = self._tested


class _Coin(float):
    """A coin that tells its walk when it falls below what it is compared with."""

    _walk: Walk

    def __new__(cls, value: float, walk: Walk) -> _Coin:
        coin = super().__new__(cls, value)
        coin._walk = walk
        return coin

    def __le__(self, other: Any) -> bool:
        below = bool(float(self) <= other)
        if below:
            self._walk.accepted()
        return below


class Standing:
    """A module as `evaluate_posterior` sees it, with some of its names replaced."""

    def __init__(self, module: Any, **replaced: Any) -> None:
        self.__dict__.update(replaced)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


@contextmanager
def injected(posterior: Posterior, case: VerifyCase, coins: Coins | None) -> Iterator[None]:
    """While it lasts, the draws of `evaluate_posterior` are what the coins say."""
    if coins is None:
        yield
        return
    torch, names = posterior.torch, posterior.names

    def frontier(law: Any, *given: Any, **named: Any) -> Any:
        torch.multinomial(law, *given, **named)  # refuses a row that is no law, as it does without coins
        reached = (coins.frontier < law.cumsum(dim=-1)).nonzero()
        return reached[0] if len(reached) else (law > 0).nonzero()[-1]

    before: tuple[Any, Callable[..., Any]] = (names["random"], names["torch"])
    names["random"] = Standing(before[0], random=Walk(case, coins.accept).random)
    names["torch"] = Standing(torch, multinomial=frontier)
    try:
        yield
    finally:
        names["random"], names["torch"] = before
