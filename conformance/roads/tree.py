"""The second road to trees: products of exact rationals, paths of tokens instead of ids, graphs of networkx.

A candidate is its path, the tokens from the root's child down to it. Its mass is the exact product of the confidences
on that path, each at least 1e-12; its value the logarithm of that one product. Numbers of nodes and rows are ranks.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import networkx as nx
import numpy as np

from oracle.types import CandidateTree, Flags, GrowthCase

Path = tuple[int, ...]
FLOOR = Fraction(1e-12)


@dataclass(frozen=True)
class Candidate:
    """A drafted node: its path, its confidence, and the exact product of the floored confidences on the path."""

    path: Path
    confidence: float
    mass: Fraction

    @property
    def value(self) -> float:
        return logarithm(self.mass)

    @property
    def depth(self) -> int:
        return len(self.path)


def logarithm(mass: Fraction) -> float:
    """The logarithm of a positive rational, however small."""
    shift = mass.denominator.bit_length() - mass.numerator.bit_length()
    return math.log(float(mass * Fraction(2) ** shift)) - shift * math.log(2)


def reader(case: GrowthCase) -> Callable[[Path], dict[int, float]]:
    """The drafter of a case as a function: path → target id → probability."""
    ids: dict[int, int] = {}
    if case.draft_map is not None:
        shift = np.arange(len(case.draft_map.d2t)) if case.draft_map.convention == "offset" else 0
        ids = dict(enumerate((np.asarray(case.draft_map.d2t) + shift).tolist()))
    table = case.table

    def row(path: Path) -> dict[int, float]:
        found = table[path] if isinstance(table, Mapping) else np.asarray(table[len(path)])[path]
        return {ids.get(v, v): float(p) for v, p in enumerate(np.asarray(found).tolist())}

    return row


def children(case: GrowthCase, path: Path) -> list[tuple[int, float]]:
    """What the drafter offers after `path`: its best tokens, ranked."""
    row = reader(case)(path)
    ranked = sorted(row, key=lambda token: (-row[token], token))
    return [(token, row[token]) for token in ranked[: case.branch_width]]


def grown(case: GrowthCase) -> list[Candidate]:
    """All candidates in the order in which they are made."""
    made: list[Candidate] = []
    layer = [Candidate((), 1.0, Fraction(1))]
    for _ in range(case.max_depth):
        latest = []
        for above in layer:
            for token, probability in children(case, above.path):
                mass = above.mass * max(Fraction(probability), FLOOR)
                latest.append(Candidate((*above.path, token), probability, mass))
        made += latest
        ranked = sorted(enumerate(latest), key=lambda one: (-one[1].mass, one[0]))
        layer = [candidate for _, candidate in ranked[: case.expand_width]]
    return made


def kept(candidates: Sequence[Candidate], budget: int) -> list[Candidate]:
    """The best `budget` candidates, in the order in which they were made."""
    ranked = sorted(range(len(candidates)), key=lambda i: (-candidates[i].mass, candidates[i].depth, i))
    return [candidates[i] for i in sorted(ranked[:budget], key=lambda i: (candidates[i].depth, i))]


def paths(parent: Sequence[int], token: Sequence[int]) -> list[Path]:
    """The path of every node, walked up from it."""
    found = []
    for i in range(len(parent)):
        walked, node = [], i
        while node != -1:
            walked.append(int(token[node]))
            node = int(parent[node])
        found.append(tuple(reversed(walked)))
    return found


def graph(parent: Sequence[int]) -> nx.DiGraph:
    """The tree below its root, which is −1."""
    found = nx.DiGraph()
    found.add_node(-1)
    found.add_edges_from((int(above), i) for i, above in enumerate(parent))
    return found


def is_tree(parent: Sequence[int]) -> bool:
    """Whether the nodes hang from the root, one parent each."""
    return bool(nx.is_arborescence(graph(parent))) if len(parent) else True


def closed(parent: Sequence[int], nodes: Iterable[int]) -> bool:
    """Whether these nodes and the root are an arborescence by themselves."""
    inside = graph(parent).subgraph({-1, *nodes})
    return len(inside) == 1 or bool(nx.is_arborescence(inside))


def visible(parent: Sequence[int]) -> Flags:
    """Ancestors and self: the reflexive closure of the tree without its root."""
    tree = graph(parent)
    found = np.zeros((len(parent), len(parent)), dtype=bool)
    for i in range(len(parent)):
        found[i, sorted({i, *nx.ancestors(tree, i)} - {-1})] = True
    return found


def depths(parent: Sequence[int]) -> list[int]:
    """Distance from the root."""
    distance = nx.single_source_shortest_path_length(graph(parent), -1)
    return [int(distance[i]) for i in range(len(parent))]


def leaf_paths(parent: Sequence[int]) -> list[Path]:
    """The rows on the way to each leaf, by leaf."""
    tree = graph(parent)
    leaves = sorted(node for node in tree if node != -1 and tree.out_degree(node) == 0)
    return [tuple(nx.shortest_path(tree, -1, leaf)[1:]) for leaf in leaves]


def links(parent: Sequence[int]) -> tuple[list[int], list[int]]:
    """First child and next sibling of each row, from the sorted families."""
    families = {node: sorted(graph(parent).successors(node)) for node in range(-1, len(parent))}
    following = {one: another for family in families.values() for one, another in itertools.pairwise(family)}
    rows = range(len(parent))
    return [families[i][0] if families[i] else -1 for i in rows], [following.get(i, -1) for i in rows]


def verified(parent: Sequence[int], prefix: int) -> Flags:
    """What the root and then each row see: decided columns, the root, the rows. bool [n + 1, prefix + n + 1]."""
    above = [*range(-1, prefix), *(prefix + int(node) + 1 for node in parent)]
    return visible(above)[prefix:]


def rank(tree: CandidateTree) -> list[int]:
    """All nodes in selection order, by their stored values."""
    values, depth = np.asarray(tree.log_value), np.asarray(tree.depth)
    return [int(i) for i in np.lexsort((np.arange(len(values)), depth, -values))]
