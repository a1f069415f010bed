"""Table models for the laws: small, prefix-dependent in every row, and chosen by what they separate.

The seed below was picked among 400 by the smallest total-variation distance that any of a list of
structural faults makes in the law; `tests/test_models.py` holds the list and measures the distances again.
On a model where a fault moves nothing it would pass.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from conformance.acceptance.cases import Prefix, TableModel, chain, floats
from oracle.types import VerifyCase

LAW_SEED = 89


def model(seed: int, proposal: str, vocabulary: int = 3, parent: Sequence[int] = (-1, 0)) -> TableModel:
    """Rows with small distinct weights; no p equals its q, no two rows are equal."""
    generator = np.random.default_rng(seed)
    target: dict[Prefix, tuple[Fraction, ...]] = {}
    draft: dict[Prefix, tuple[Fraction, ...]] = {}
    taken: set[tuple[Fraction, ...]] = set()
    depth = TableModel(tuple(parent), proposal, target, draft).depth
    for length in range(depth + 1):
        for prefix in itertools.product(range(vocabulary), repeat=length):
            while True:
                p, q = (_row(generator, vocabulary) for _ in range(2))
                if p not in taken and q not in taken and all(a != b for a, b in zip(p, q)):
                    break
            taken |= {p, q}
            target[prefix], draft[prefix] = p, q
    return TableModel(tuple(parent), proposal, target, draft)


def law_models(proposal: str) -> list[TableModel]:
    """The models whose law a run judges."""
    return [model(LAW_SEED, proposal)]


TREE = (-1, -1, 0, 0)
"""Two siblings below the root, two below the first of them."""


FORK_SEEDS = {"iid": 406, "point": 55, "without_replacement": 98}
"""Picked among 900 by the smallest distance in the first token's law that a sorted or pruned pair, twins counted
twice, an untouched row or a shared coin makes; `tests/test_models.py` measures the distances again."""


def fork_model(proposal: str) -> TableModel:
    """Two siblings below the root, for the law of what is published first."""
    return model(FORK_SEEDS[proposal], proposal, vocabulary=3, parent=(-1, -1))


def tree_models(proposal: str) -> list[TableModel]:
    """The trees whose law a run judges."""
    return [model(LAW_SEED, proposal, vocabulary=3, parent=TREE)]


def ragged_models() -> tuple[TableModel, ...]:
    """Models of one vocabulary that differ in length, kind and every row."""
    return model(11, "iid"), model(12, "point", parent=(-1,)), model(13, "iid", parent=(-1, 0, 1))


def accounting_members(proposal: str) -> list[VerifyCase]:
    """A ragged batch whose drafts are accepted with 0.965 to 0.985, another share at every node.

    So a factor of 0.98 or 1.02 on any one of them changes a coin that is tossed nearly every round.
    """
    members = []
    for m, drafts in enumerate((4, 3, 2)):
        size = 4 + m % 2
        target, draft, tokens = [], [], []
        for i in range(drafts + 1):
            token = (2 * m + 3 * i + 1) % size
            share = 0.965 + 0.005 * ((m + 2 * i) % 5)
            weights = [0.0 if v == token else 1.0 + (v + i + m) % 3 for v in range(size)]
            rest = sum(weights)
            if proposal == "point":
                p = [w / rest * (1 - share) for w in weights]
                p[token] = share
                q = [float(v == token) for v in range(size)]
            else:
                held = 0.6 + 0.02 * i
                q = [w / rest * (1 - held) for w in weights]
                q[token] = held
                moved = [0.0 if v == token else 1.0 + (2 * v + i) % 3 for v in range(size)]
                p = [b + held * (1 - share) * w / sum(moved) for b, w in zip(q, moved)]
                p[token] = held * share
            target.append(p)
            draft.append(q)
            tokens.append(token)
        members.append(chain(tokens[:drafts], target, None if proposal == "point" else draft, proposal))
    return members


TREES = (((-1, -1, -1, 1, 1), 5), ((-1, -1, 0, 0, 2), 4))
"""Shapes and vocabularies: three siblings below the root, two below the second; and a deeper one."""


def accounting_trees(proposal: str) -> list[VerifyCase]:
    """Two trees whose nodes are all tested often, and accepted by a share of their own inside (0, 1)."""
    generator = np.random.default_rng(ACCOUNTING_SEEDS[proposal])
    members = []
    for parent, size in TREES:
        tokens: list[int] = []
        for i, above in enumerate(parent):
            taken = [tokens[j] for j in range(i) if parent[j] == above]
            tokens.append(int(generator.choice([v for v in range(size) if v not in taken])))
        target = [_row(generator, size) for _ in range(len(parent) + 1)]
        draft = []
        for node in range(-1, len(parent)):  # more draft mass on the first child, so that it is rejected often
            first = next((tokens[i] for i, above in enumerate(parent) if above == node), None)
            weights = [int(w) + 9 * (v == first) for v, w in enumerate(generator.integers(1, 12, size))]
            draft.append([w / sum(weights) for w in weights])
        members.append(
            VerifyCase(
                np.array(parent, dtype=np.int64),
                np.array(tokens, dtype=np.int64),
                floats(target),
                proposal,
                None if proposal == "point" else floats(draft),
            )
        )
    return members


ACCOUNTING_SEEDS = {"point": 2389, "iid": 6391, "without_replacement": 2970}
"""Picked so that every node is tested often, second siblings by a share inside (0, 1); `tests/test_models.py`
measures it."""


def _row(generator: np.random.Generator, vocabulary: int) -> tuple[Fraction, ...]:
    weights = generator.integers(1, 12, vocabulary)
    total = int(weights.sum())
    return tuple(Fraction(int(w), total) for w in weights)
