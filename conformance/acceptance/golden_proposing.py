"""The golden cases of proposing: point proposals drawn out, laws of drawn ones, and rows that are declared for them.

Tables hold sixteenths, no two rows alike, so that a row read after another prefix shows.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from adapters.interface import Declaration
from conformance.acceptance import proposing
from conformance.acceptance.cases import TableModel
from conformance.acceptance.golden_drawing import ALPHA
from conformance.acceptance.golden_making import Refused, ids
from conformance.acceptance.replaying import broken, table_of
from conformance.fixtures import laws
from conformance.fixtures.flags import UNCHANGED
from conformance.fixtures.golden import Answer, Golden
from conformance.verdicts import HarnessError
from oracle import acceptance as oracle
from oracle.discrete import Row, without
from oracle.enumeration import Run, branches
from oracle.types import ProposalCase, Proposals

TRIALS = 512
"""Of a law; of a relation the case says itself how many there are."""
ROUNDINGS = 4
"""A declared row is cast, and may be renormalised."""
Prefix = tuple[int, ...]
Table = Mapping[Prefix, tuple[float, ...]]


@dataclass(frozen=True, eq=False)
class Declared(Golden):
    """Drafts that are judged by the rows declared for them, and as trials of their own."""


def sixteenths(rows: Mapping[Prefix, Sequence[int]]) -> Table:
    return {prefix: tuple(v / 16 for v in row) for prefix, row in rows.items()}


FORK, CHAIN, WIDE = (-1, -1, 0), (-1, 0), (-1, -1, -1, 0, 1, 4)
_TABLE = sixteenths({(): (3, 8, 5), (0,): (9, 5, 2), (1,): (4, 1, 11), (2,): (2, 8, 6)})
_TIED = sixteenths({(): (2, 5, 5, 4), (1,): (6, 2, 2, 6), (2,): (4, 4, 4, 4), (0,): (1, 1, 7, 7), (3,): (5, 1, 5, 5)})
_GAPPED = sixteenths({(): (0, 7, 0, 9), (1,): (4, 0, 12, 0), (3,): (0, 0, 5, 11)})
_PAIRED = sixteenths({(): (1, 10, 5, 0), (1,): (5, 3, 8, 0), (2,): (0, 4, 3, 9), (0,): (7, 7, 1, 1)})
_DEEP = sixteenths(
    {
        (): (5, 4, 7),
        **{(a,): (2 + 3 * a, 9 - 2 * a, 5 - a) for a in range(3)},
        **{(a, b): (1 + 2 * a + b, 4 + a, 11 - 3 * a - b) for a in range(3) for b in range(3)},
    }
)
_UNREAD = {prefix: np.array(row) for prefix, row in {**_TABLE, (0,): (0.5, 0.75, 0.25), (2,): (0.0, 0.0, 0.0)}.items()}
"""Rows that no draft leads to are no laws."""


def layers(table: Table) -> list[np.ndarray]:
    """The table as one array a depth."""
    size = len(table[()])
    depths = range(max(map(len, table)) + 1)
    rows = [[table[prefix] for prefix in itertools.product(range(size), repeat=depth)] for depth in depths]
    return [np.array(held, dtype=np.float64).reshape([size] * (depth + 1)) for depth, held in enumerate(rows)]


def asked(
    told: str,
    table: Any,
    parent: Sequence[int],
    proposal: str,
    trials: int,
    seed: int,
    *clauses: int,
    flags: tuple[str, ...] = (),
    kind: Any = Golden,
) -> Golden:
    case = ProposalCase(table, np.array(parent, dtype=np.int64), proposal, trials, seed)
    made: Golden = kind("propose", ids(clauses), told, {"case": case}, flags)
    return made


_REPLACED, _FREE = "without_replacement", "iid"
PROPOSED: tuple[Golden, ...] = (
    asked(
        "The two most probable tokens are drafted, and one below the first",
        _TABLE,
        FORK,
        "point",
        2,
        1,
        1101,
        1103,
        1104,
    ),
    asked("The same from one array a depth", layers(_TABLE), FORK, "point", 3, 2, 1101, 1103, 1104),
    asked(
        "Of equally probable tokens the lower id is drafted first",
        _TIED,
        (-1, -1, 0, 0, 1),
        "point",
        1,
        3,
        1104,
        flags=("ties",),
    ),
    asked("A chain follows its own tokens", _DEEP, (-1, 0, 1), "point", 2, 4, 1103, 1104),
    asked("Three siblings, a child below the second, and a third layer", _DEEP, WIDE, "point", 1, 5, 1103, 1104),
    asked("Tokens without mass are left out", _GAPPED, (-1, -1, 0), "point", 1, 6, 1104),
    asked(
        "Rows that no draft leads to are read by nobody",
        _UNREAD,
        (-1, 0),
        "point",
        2,
        7,
        803,
        1103,
        flags=("poison", UNCHANGED),
    ),
    asked("No trials draft nothing", _TABLE, FORK, _FREE, 0, 8, 1101, flags=("empty",)),
    asked("No nodes draft nothing, trial by trial", _TABLE, (), _FREE, 3, 9, 1101, flags=("empty",)),
    asked("Independent siblings, and a child below the first", _TABLE, FORK, _FREE, 1, 10, 1106),
    asked("Independent siblings of which one is likely, and twins are", _PAIRED, (-1, -1), _FREE, 1, 11, 1106),
    asked("A chain drawn token by token", _TABLE, CHAIN, _FREE, 1, 12, 1106),
    asked("Siblings without replacement, and a child below the first", _TABLE, FORK, _REPLACED, 1, 13, 1105, 1107),
    asked("Three siblings without replacement", _PAIRED, (-1, -1, -1), _REPLACED, 1, 14, 1105, 1107),
    asked("Siblings that use up the support of their row", _GAPPED, (-1, -1), _REPLACED, 1, 15, 1105, 1107),
    *(
        asked(told, table, parent, proposal, 256, seed, *clauses, kind=Declared)
        for told, table, parent, proposal, seed, *clauses in (
            ("Independent drafts and their rows", _TABLE, FORK, _FREE, 16, 1102, 1103, 1108),
            ("Independent drafts and their rows, from arrays", layers(_TABLE), FORK, _FREE, 17, 1101, 1102, 1103, 1108),
            ("Drafts of a chain and their rows", _DEEP, (-1, 0, 1), _FREE, 18, 1102, 1103, 1108),
            ("Drafts without replacement and their rows", _TABLE, FORK, _REPLACED, 19, 1102, 1103, 1105),
            ("Drafts in three layers, from arrays", layers(_DEEP), WIDE, _FREE, 20, 1101, 1103),
        )
    ),
    *(
        Refused(
            "propose",
            ids([1109]),
            f"Three siblings on a support of two are refused: {proposal}",
            {"case": proposing.asked(proposing.scarce_model(proposal), 2, 1)},
            ("hostile",),
            "case.parent",
        )
        for proposal in ("point", _REPLACED)
    ),
)


def answer(golden: Golden) -> Answer:
    """Drafts drawn out, their law, or their relation, by two roads."""
    case: ProposalCase = golden.arguments["case"]
    if case.proposal == "point" or not case.trials or not len(case.parent):
        return _drawn_out(golden.description, case)
    law = dict(_model(case).drafted())
    if law != _by_branches(case):
        raise HarnessError(f"{golden.description}: two roads to the law of its drafts disagree")
    roads = ("oracle", "rationals")
    if not isinstance(golden, Declared):
        distance = laws.distance(law, TRIALS, ALPHA)
        return Answer(law, roads, "law", {"trials": TRIALS, "alpha": ALPHA, "distance": distance})
    repeated = sum((p * p for p in law.values()), Fraction(0))
    relation = {"relation": "declared_drafts", "roundings": ROUNDINGS, "repeated": repeated, "alpha": ALPHA}
    reference = Declaration("oracle", "1")
    if wrong := broken(relation, "propose", golden.arguments, lambda _, one: oracle.propose(one), reference):
        raise HarnessError(f"{golden.description}: the oracle breaks the relation: {wrong}")
    return Answer(relation, roads, "relation")


def _model(case: ProposalCase) -> TableModel:
    """The table in rationals, as the suite's own models hold it."""
    rows = {prefix: tuple(map(Fraction, row)) for prefix, row in table_of(case).items()}
    return TableModel(tuple(case.parent.tolist()), case.proposal, rows, rows)


def _drawn_out(told: str, case: ProposalCase) -> Answer:
    """Every trial alike; what is declared for the children of a leaf is free."""
    model, read = _model(case), sorted(set(case.parent.tolist()))
    tokens = next(model.drafted())[0] if case.trials else (0,) * len(case.parent)
    rows = np.full((len(tokens) + 1, model.vocabulary), np.nan)
    for node in read if case.trials else ():
        rows[node + 1] = [float(p) for p in model.draft[model.prefix(tokens, node)]]
    token = np.tile(np.array(tokens, dtype=np.int64), (case.trials, 1))
    right = Proposals(token, np.tile(rows, (case.trials, 1, 1)))
    found, kept = oracle.propose(case), [node + 1 for node in read]
    same = np.array_equal(found.token, token) and found.draft_probs.shape == right.draft_probs.shape
    if not same or not np.array_equal(found.draft_probs[:, kept], right.draft_probs[:, kept]):
        raise HarnessError(f"{told}: the oracle drafts {found.token.tolist()}, the second road {tokens}")
    return Answer(right, ("oracle", "sorted order"))


def _by_branches(case: ProposalCase) -> dict[Prefix, Fraction]:
    """The draws of the oracle, asked for every way that they fall."""
    parent, table = case.parent.tolist(), table_of(case)

    def program(run: Run) -> Prefix:
        tokens: list[int] = []
        prefixes: dict[int, Prefix] = {-1: ()}
        for i, above in enumerate(parent):
            left: Row = [Fraction(p) for p in table[prefixes[above]]]
            if case.proposal == "without_replacement":
                for j in range(i):
                    left = without(left, tokens[j]) if parent[j] == above else left
            tokens.append(run.choose(left))
            prefixes[i] = (*prefixes[above], tokens[-1])
        return tuple(tokens)

    found: dict[Prefix, Fraction] = {}
    for weight, tokens in branches(program):
        found[tokens] = found.get(tokens, Fraction(0)) + weight
    return found
