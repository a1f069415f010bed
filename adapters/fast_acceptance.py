"""Acceptance by `oracle.fast.acceptance`, as `adapters.fast` hands it out: cases of one vocabulary, proposal and shape
(chains, trees) make one call, padded to the longest; a request keeps its place in the list as its number.

`propose` calls the drafter with rows of the case's table. A table is read row by row, and a row it has not got is
`BadInput`, as everything else the implementation refuses is what it raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from adapters.fast_tree import whole_numbers
from adapters.interface import NotApplicable
from oracle.errors import BadInput
from oracle.types import Coins, Decision, ProposalCase, Proposals, VerifyCase, WarpCase

if TYPE_CHECKING:
    from torch import Tensor

COST: Mapping[str, float] = {
    **{"verify_greedy": 1e-4, "verify_sampled": 2e-4, "verify_random": 2e-4},
    **{"warp": 3e-4, "propose": 1e-4},
}
PROMISES = ("seed",)
CONVENTIONS: Mapping[str, str] = {
    "coin_scheme": "per_node",
    "frontier_coin": "inverse_cdf",
    "accept_operator": "<",
    "filter_order": "temperature,top_k,top_p,min_p",
    "top_k_ties": "exact",
}


class Acceptance:
    """The operations with rows of a dtype, by the walk on a CPU or by the way that the host stays out of."""

    dtype = "float64"
    vectorised = False

    @classmethod
    def verify_greedy(cls, cases: Sequence[VerifyCase]) -> list[Decision]:
        """By the largest entry of each row."""

        def call(drafts: Any, places: list[int], target: list[Tensor], _: list[Tensor] | None, __: str) -> Any:
            return _fast().verify_greedy(drafts, target, validate=True, vectorised=cls.vectorised)

        return cls._grouped(cases, call)

    @classmethod
    def verify_sampled(cls, cases: Sequence[VerifyCase], coins: Sequence[Coins]) -> list[Decision]:
        """With the coins given, padded with zeros."""
        import torch

        def call(drafts: Any, places: list[int], target: list[Tensor], draft: list[Tensor] | None, kind: str) -> Any:
            nodes = drafts.token.shape[1]
            accept = [np.asarray(coins[i].accept, dtype=np.float64) for i in places]
            for i, own in zip(places, accept):
                if own.shape != (len(cases[i].token),):
                    raise BadInput(f"coins[{i}].accept", (), "there is one accept coin a node", own.shape)
            padded = torch.tensor(np.array([np.pad(own, (0, nodes - len(own))) for own in accept]))
            frontier = torch.tensor([float(coins[i].frontier) for i in places], dtype=torch.float64)
            spent = _fast().Coins(padded, frontier)
            return _fast().verify_sampled(drafts, spent, target, draft, kind, validate=True, vectorised=cls.vectorised)

        return cls._grouped(cases, call)

    @classmethod
    def verify_random(cls, cases: Sequence[VerifyCase], seed: int) -> list[Decision]:
        """With the coins of (seed, place in the list, node)."""
        import torch

        def call(drafts: Any, places: list[int], target: list[Tensor], draft: list[Tensor] | None, kind: str) -> Any:
            requests = torch.tensor(places, dtype=torch.int64)
            more = {"requests": requests, "validate": True, "vectorised": cls.vectorised}
            return _fast().verify_random(drafts, seed, target, draft, kind, **more)

        return cls._grouped(cases, call)

    @classmethod
    def warp(cls, case: WarpCase) -> np.ndarray:
        """The warped rows, float64."""
        import torch

        logits = cls._law_rows(case.logits)
        given = [_parameter(value) for value in (case.temperature, case.top_k, case.top_p, case.min_p)]
        found: np.ndarray = _fast().warp(logits, *given, validate=True).to(torch.float64).cpu().numpy()
        return found

    @classmethod
    def propose(cls, case: ProposalCase) -> Proposals:
        """Every trial is a request."""
        import torch

        table = _Table(case.table)

        def drafter(prefixes: Tensor) -> Tensor:
            found = [[table.row(tuple(way)) for way in member] for member in prefixes.tolist()]
            shape = (*prefixes.shape[:2], table.vocabulary)
            return cls._law_rows(np.array(found, dtype=np.float64).reshape(shape))

        made = _fast().propose(
            *(drafter, np.asarray(case.parent).tolist(), case.proposal, case.seed, case.trials),
            device=torch.get_default_device(),
            validate=True,
        )
        return Proposals(made.token.cpu().numpy(), made.draft_probs.to(torch.float64).cpu().numpy())

    @classmethod
    def _grouped(cls, cases: Sequence[VerifyCase], call: Callable[..., Any]) -> list[Decision]:
        """One call for the cases that fit into one; decisions in the order of the cases."""
        groups: dict[tuple[Any, ...], list[int]] = {}
        for i, case in enumerate(cases):
            if len(case.parent) != len(case.token):  # padding would hide it
                raise BadInput(f"cases[{i}].parent", (), f"has one entry for each of {len(case.token)} nodes")
            chain = np.array_equal(case.parent, np.arange(-1, len(case.token) - 1))
            groups.setdefault((case.proposal, np.shape(case.target_probs)[-1], chain), []).append(i)
        found: dict[int, Decision] = {}
        for (proposal, _, chain), places in groups.items():
            own = [cases[i] for i in places]
            target = [cls._law_rows(case.target_probs) for case in own]
            draft = None if proposal == "point" else [cls._law_rows(case.draft_probs) for case in own]
            made = call(_drafts(own, chain), places, target, draft, proposal)
            for i, path, count, token in zip(places, *(values.tolist() for values in made)):
                found[i] = Decision(tuple(path[:count]), token)
        return [found[i] for i in range(len(cases))]

    @classmethod
    def _law_rows(cls, values: object) -> Tensor:
        import torch

        rows = torch.tensor(np.array(values))  # a copy: an array that is shared with torch can be written by it
        if not rows.is_floating_point():
            return rows
        given = rows.to(getattr(torch, cls.dtype))
        if bool((given.isinf() & rows.isfinite()).any()):
            raise NotApplicable(f"{cls.dtype} has no number as large as one of these")
        return given


class _Table:
    """The rows of a draft table of either form."""

    def __init__(self, table: Any) -> None:
        self._table = table
        self.vocabulary = len(self.row(()))

    def row(self, prefix: tuple[int, ...]) -> np.ndarray:
        """What the table has after a prefix."""
        try:
            if isinstance(self._table, Mapping):
                return np.asarray(self._table[prefix], dtype=np.float64)
            found: np.ndarray = np.asarray(self._table[len(prefix)], dtype=np.float64)[prefix]
            return found
        except (KeyError, IndexError):
            raise BadInput("case.table", prefix, "has a row for each prefix that is drafted from") from None


def _drafts(cases: Sequence[VerifyCase], chain: bool) -> Any:
    import torch

    lengths = [len(case.token) for case in cases]
    nodes = max(lengths)

    def padded(values: Sequence[Any], fill: int) -> Tensor:
        rows = [np.pad(whole_numbers(v), (0, nodes - len(v)), constant_values=fill) for v in values]
        return torch.tensor(np.array(rows))

    parent = None if chain else padded([case.parent for case in cases], -1)
    return _fast().Drafts(padded([case.token for case in cases], 0), parent, torch.tensor(lengths))


def _parameter(value: Any) -> Any:
    import torch

    array = np.asarray(value)
    if array.ndim == 0:
        return array.item()
    return torch.tensor(array)


def _fast() -> Any:
    from oracle.fast import acceptance

    return acceptance
