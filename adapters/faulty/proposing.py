"""Proposers with one fault each. The right one draws all trials of a node at once, cut into steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from adapters.interface import Declaration
from oracle.types import ProposalCase, Proposals


class Proposer:
    """A right proposer: node by node, one uniform a trial, inverse CDF."""

    DECLARATION: ClassVar[Declaration]
    refutes: ClassVar[str]
    seen_in: ClassVar[str] = "quick"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.DECLARATION = Declaration(cls.__name__, "1", cost={"propose": 3e-5}, promises=("seed",))

    @classmethod
    def propose(cls, case: ProposalCase) -> Proposals:
        nodes, size = len(case.parent), len(cls.row(case, ()))
        parent = case.parent.tolist()
        generator = np.random.default_rng(case.seed)
        token = np.zeros((case.trials, nodes), dtype=np.int64)
        rows = np.zeros((case.trials, nodes + 1, size))
        for node in range(nodes):
            siblings = [j for j in range(node) if parent[j] == parent[node]]
            above = rows[:, parent[node] + 1]
            if not siblings:
                for trial in range(case.trials):
                    above[trial] = cls.row(case, cls.prefix(parent, token[trial], parent[node]))
            uniforms = cls.uniforms(generator, case.trials, siblings)
            token[:, node] = cls.draw(case, above, token[:, siblings], uniforms)
            token[:, [*siblings, node]] = cls.arrange(case, above, token[:, [*siblings, node]])
        return cls.declare(case, token, rows)

    @classmethod
    def row(cls, case: ProposalCase, prefix: tuple[int, ...]) -> np.ndarray:
        if isinstance(case.table, Mapping):
            return np.array(case.table[prefix], dtype=np.float64)
        return np.asarray(case.table[len(prefix)][prefix], dtype=np.float64)

    @classmethod
    def prefix(cls, parent: list[int], token: np.ndarray, node: int) -> tuple[int, ...]:
        return () if node == -1 else (*cls.prefix(parent, token, parent[node]), int(token[node]))

    @classmethod
    def uniforms(cls, generator: np.random.Generator, trials: int, siblings: list[int]) -> np.ndarray:
        return generator.random(trials)

    @classmethod
    def draw(cls, case: ProposalCase, rows: np.ndarray, earlier: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        """The tokens of one node in every trial: its row, its earlier siblings' tokens, its uniform."""
        left = cls.left(case, rows, earlier)
        if not (left.sum(axis=1) > 0).all():
            left = cls.exhausted(left)
        if case.proposal == "point":
            return cls.best(left)
        law = left / left.sum(axis=1, keepdims=True)
        return cls.independent(law, uniforms) if case.proposal == "iid" else cls.pick(law, uniforms)

    @classmethod
    def arrange(cls, case: ProposalCase, rows: np.ndarray, siblings: np.ndarray) -> np.ndarray:
        """The siblings drawn so far, [trials, s], in the order in which they are proposed."""
        return siblings

    @classmethod
    def left(cls, case: ProposalCase, rows: np.ndarray, earlier: np.ndarray) -> np.ndarray:
        left = rows.copy()
        if case.proposal != "iid":
            for tokens in earlier.T:
                left[np.arange(len(left)), tokens] = 0.0
        return left

    @classmethod
    def exhausted(cls, left: np.ndarray) -> np.ndarray:
        raise ValueError("more siblings than tokens of mass")

    @classmethod
    def independent(cls, law: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        """One token a trial from the row of an independent sibling."""
        return cls.pick(law, uniforms)

    @classmethod
    def best(cls, left: np.ndarray) -> np.ndarray:
        found: np.ndarray = left.argmax(axis=1)
        return found

    @classmethod
    def pick(cls, law: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        reached = (law.cumsum(axis=1) <= uniforms[:, None]).sum(axis=1)
        found: np.ndarray = np.minimum(reached, law.shape[1] - 1)
        return found

    @classmethod
    def declare(cls, case: ProposalCase, token: np.ndarray, rows: np.ndarray) -> Proposals:
        return Proposals(token, rows)


class LosesATrialOfLayers(Proposer):
    """Returns one trial less where the table comes as one array a depth."""

    refutes = "ACCEPTANCE-1101"

    @classmethod
    def declare(cls, case: ProposalCase, token: np.ndarray, rows: np.ndarray) -> Proposals:
        count = case.trials if isinstance(case.table, Mapping) else case.trials - 1
        return Proposals(token[:count], rows[:count])


class DeclaresLogits(Proposer):
    """Declares the logarithms of its rows."""

    refutes = "ACCEPTANCE-1101"

    @classmethod
    def declare(cls, case: ProposalCase, token: np.ndarray, rows: np.ndarray) -> Proposals:
        return Proposals(token, np.log(np.maximum(rows, 1e-30)))


class RowsOfTheTrialBefore(Proposer):
    """Declares the rows of the trial before."""

    refutes = "ACCEPTANCE-1103"

    @classmethod
    def declare(cls, case: ProposalCase, token: np.ndarray, rows: np.ndarray) -> Proposals:
        shifted = np.roll(rows, 1, axis=0)
        if case.proposal == "point":  # all of its trials are the same, so it takes those of another prefix
            shifted[:, 1] = rows[:, 0]
        return Proposals(token, shifted)


class DeclaresASoftenedRow(Proposer):
    """Declares its rows at another temperature than it drew from."""

    refutes = "ACCEPTANCE-1103"

    @classmethod
    def declare(cls, case: ProposalCase, token: np.ndarray, rows: np.ndarray) -> Proposals:
        softened = np.sqrt(rows)
        return Proposals(token, softened / np.maximum(softened.sum(axis=2, keepdims=True), 1e-30))


class OneRowForAllNodes(Proposer):
    """Declares the root's row for every node."""

    refutes = "ACCEPTANCE-1103"

    @classmethod
    def declare(cls, case: ProposalCase, token: np.ndarray, rows: np.ndarray) -> Proposals:
        return Proposals(token, np.repeat(rows[:, :1], rows.shape[1], axis=1))


class HighestIdFirst(Proposer):
    """Among equally probable tokens it proposes the highest id first."""

    refutes = "ACCEPTANCE-1104"

    @classmethod
    def best(cls, left: np.ndarray) -> np.ndarray:
        found: np.ndarray = left.shape[1] - 1 - left[:, ::-1].argmax(axis=1)
        return found


class LeastProbableFirst(Proposer):
    """Proposes the least probable tokens that have mass."""

    refutes = "ACCEPTANCE-1104"

    @classmethod
    def best(cls, left: np.ndarray) -> np.ndarray:
        found: np.ndarray = np.where(left > 0, left, 2.0).argmin(axis=1)
        return found


class DrawsWithReplacement(Proposer):
    """Draws siblings without replacement as if they were independent."""

    refutes = "ACCEPTANCE-1105"

    @classmethod
    def left(cls, case: ProposalCase, rows: np.ndarray, earlier: np.ndarray) -> np.ndarray:
        if case.proposal == "point":
            return super().left(case, rows, earlier)
        if earlier.shape[1] >= (rows[0] > 0).sum():
            raise ValueError("more siblings than tokens of mass")
        return rows


class DrawsAfterTopKDeclaresBefore(Proposer):
    """Draws from the two most probable tokens and declares the whole row."""

    refutes = "ACCEPTANCE-1106"

    @classmethod
    def independent(cls, law: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        smallest = np.sort(law, axis=1)[:, -2:-1]
        kept = np.where(law >= smallest, law, 0.0)
        return cls.pick(kept / kept.sum(axis=1, keepdims=True), uniforms)


class FirstSiblingIsTheArgmax(Proposer):
    """Proposes the most probable token as first of the independent siblings and declares that it was drawn."""

    refutes = "ACCEPTANCE-1106"

    @classmethod
    def draw(cls, case: ProposalCase, rows: np.ndarray, earlier: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        if case.proposal == "iid" and not earlier.shape[1]:
            return cls.best(rows)
        return super().draw(case, rows, earlier, uniforms)


class SiblingsShareAUniform(Proposer):
    """Draws all independent siblings of a node with one uniform, so they are always twins."""

    refutes = "ACCEPTANCE-1106"

    @classmethod
    def draw(cls, case: ProposalCase, rows: np.ndarray, earlier: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        if case.proposal == "iid" and earlier.shape[1]:
            return earlier[:, 0]
        return super().draw(case, rows, earlier, uniforms)


class KeepsTheBestOfTwo(Proposer):
    """Draws every node twice and keeps the more probable token: drafts pruned by their value."""

    refutes = "ACCEPTANCE-1106"

    @classmethod
    def independent(cls, law: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        one, two = cls.pick(law, uniforms), cls.pick(law, (uniforms * 4096) % 1)
        at = np.arange(len(law))
        return np.where(law[at, one] >= law[at, two], one, two)


class SortsIndependentSiblings(Proposer):
    """Sorts independent siblings by their probability after the draw."""

    refutes = "ACCEPTANCE-1106"
    proposal: ClassVar[str] = "iid"

    @classmethod
    def arrange(cls, case: ProposalCase, rows: np.ndarray, siblings: np.ndarray) -> np.ndarray:
        if case.proposal != cls.proposal:
            return siblings
        mass = np.take_along_axis(rows, siblings, axis=1)
        return np.take_along_axis(siblings, np.argsort(-mass, axis=1, kind="stable"), axis=1)


class SortsSiblingsWithoutReplacement(SortsIndependentSiblings):
    """Sorts siblings drawn without replacement by their probability."""

    refutes = "ACCEPTANCE-1107"
    proposal = "without_replacement"


class EvenAmongTheRest(Proposer):
    """Draws a second sibling evenly among the tokens that are left."""

    refutes = "ACCEPTANCE-1107"

    @classmethod
    def left(cls, case: ProposalCase, rows: np.ndarray, earlier: np.ndarray) -> np.ndarray:
        left = super().left(case, rows, earlier)
        if case.proposal == "without_replacement" and earlier.shape[1]:
            return (left > 0).astype(np.float64)
        return left


class TrialsInPairs(Proposer):
    """Uses each uniform for two trials."""

    refutes = "ACCEPTANCE-1108"

    @classmethod
    def uniforms(cls, generator: np.random.Generator, trials: int, siblings: list[int]) -> np.ndarray:
        return np.repeat(generator.random((trials + 1) // 2), 2)[:trials]


class SeedOfTheFirstCall(Proposer):
    """Draws with one fixed stream, whatever the seed."""

    refutes = "ACCEPTANCE-1102"

    @classmethod
    def propose(cls, case: ProposalCase) -> Proposals:
        return super().propose(ProposalCase(case.table, case.parent, case.proposal, case.trials, case.trials))


class ProposesBeyondTheSupport(Proposer):
    """Proposes tokens without mass once the support is used up."""

    refutes = "ACCEPTANCE-1109"

    @classmethod
    def exhausted(cls, left: np.ndarray) -> np.ndarray:
        return np.where(left.sum(axis=1, keepdims=True) > 0, left, 1.0)


class ChildrenOfTheFirstSibling(Proposer):
    """Reads the children of a later sibling below the first one's token."""

    refutes = "ACCEPTANCE-1103"

    @classmethod
    def prefix(cls, parent: list[int], token: np.ndarray, node: int) -> tuple[int, ...]:
        if node > 0 and parent[node] == -1:
            node = 0
        return super().prefix(parent, token, node)


class SecondHalfRepeats(Proposer):
    """Draws half of the trials and hands them out twice."""

    refutes = "ACCEPTANCE-1108"

    @classmethod
    def uniforms(cls, generator: np.random.Generator, trials: int, siblings: list[int]) -> np.ndarray:
        half = generator.random(trials - trials // 2)
        return np.concatenate([half[: trials // 2], half])


class EmptiesItsTable(Proposer):
    """Takes the rows that it has read out of its table."""

    refutes = "ACCEPTANCE-803"

    @classmethod
    def declare(cls, case: ProposalCase, token: np.ndarray, rows: np.ndarray) -> Proposals:
        if isinstance(case.table, dict):
            case.table.clear()
        return Proposals(token, rows)


class DraftsAnewEachTime(Proposer):
    """Promises the same drafts for the same seed and counts its calls into the seed."""

    refutes = "ACCEPTANCE-801"
    calls: ClassVar[int] = 0

    @classmethod
    def propose(cls, case: ProposalCase) -> Proposals:
        cls.calls += 1
        return super().propose(dataclasses.replace(case, seed=case.seed * 1_000_003 + cls.calls))


class SeedsNumpy(Proposer):
    """Seeds NumPy's global generator for each call, and declares none."""

    refutes = "ACCEPTANCE-802"

    @classmethod
    def propose(cls, case: ProposalCase) -> Proposals:
        np.random.seed(case.seed % 2**32)
        return super().propose(case)
