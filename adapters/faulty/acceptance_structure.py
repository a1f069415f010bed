"""Verifiers of chains with one fault each: structure and greedy."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from adapters.faulty.chain import Chain, Member, Row, Trial, owed
from oracle.types import Coins, Decision, VerifyCase

# ---- structure


class NoBonus(Chain):
    """Publishes −1 in the place of the frontier when every draft is accepted."""

    refutes = "ACCEPTANCE-101"

    @classmethod
    def walk(
        cls, case: VerifyCase, accepts: Callable[[int, Row], bool], frontier: Callable[[int, Row, bool], int]
    ) -> Decision:
        return super().walk(case, accepts, lambda node, row, rejected: frontier(node, row, True) if rejected else -1)


class SkipsTheRejected(Chain):
    """Leaves a rejected draft out and goes on with the next one."""

    refutes = "ACCEPTANCE-102"

    @classmethod
    def walk(
        cls, case: VerifyCase, accepts: Callable[[int, Row], bool], frontier: Callable[[int, Row, bool], int]
    ) -> Decision:
        stop = super().walk(case, accepts, frontier)
        later = range(len(stop.path) + 1, len(case.token))
        also = [node for node in later if accepts(node, cls.row(case.target_probs, node))]
        return Decision((*stop.path, *also), stop.frontier)


class NeedsADraft(Chain):
    """Fails on a case without drafts when it is alone."""

    refutes = "ACCEPTANCE-103"

    @classmethod
    def members(cls, cases: Sequence[VerifyCase], coins: Sequence[Coins]) -> list[Member]:
        if len(cases) == 1 and not len(cases[0].token):
            raise IndexError("nothing to verify")
        return super().members(cases, coins)


class DropsMembersWithoutDrafts(Chain):
    """Returns nothing for the members that have no drafts where others have some."""

    refutes = "ACCEPTANCE-104"

    @classmethod
    def members(cls, cases: Sequence[VerifyCase], coins: Sequence[Coins]) -> list[Member]:
        drafted = [(case, spent) for case, spent in zip(cases, coins) if len(case.token)]
        return drafted or super().members(cases, coins)


class FirstMembersRows(Chain):
    """Verifies every member against the target rows of the first one of its shape."""

    refutes = "ACCEPTANCE-105"

    @classmethod
    def members(cls, cases: Sequence[VerifyCase], coins: Sequence[Coins]) -> list[Member]:
        first: dict[tuple[int, ...], np.ndarray] = {}
        rows = [first.setdefault(case.target_probs.shape, case.target_probs) for case in cases]
        return [(dataclasses.replace(c, target_probs=p), spent) for c, p, spent in zip(cases, rows, coins)]


class FirstMembersCoins(Chain):
    """Spends the coins of the first member on every member of its length."""

    refutes = "ACCEPTANCE-105"

    @classmethod
    def members(cls, cases: Sequence[VerifyCase], coins: Sequence[Coins]) -> list[Member]:
        first: dict[int, Coins] = {}
        return [(case, first.setdefault(len(case.token), spent)) for case, spent in zip(cases, coins)]


class TruncatesToTheShortest(Chain):
    """Cuts every member to the fewest drafts that a member of the batch has."""

    refutes = "ACCEPTANCE-106"

    @classmethod
    def members(cls, cases: Sequence[VerifyCase], coins: Sequence[Coins]) -> list[Member]:
        n = min(len(case.token) for case in cases)
        cut = [dataclasses.replace(case, parent=case.parent[:n], token=case.token[:n]) for case in cases]
        return super().members(cut, coins)


class PadsWithTokenZero(Chain):
    """Pads shorter members with drafts of token 0, judged by their last rows, and verifies those too."""

    refutes = "ACCEPTANCE-106"

    @classmethod
    def members(cls, cases: Sequence[VerifyCase], coins: Sequence[Coins]) -> list[Member]:
        longest = max(len(case.token) for case in cases)
        return [cls.padded(case, spent, longest - len(case.token)) for case, spent in zip(cases, coins)]

    @classmethod
    def padded(cls, case: VerifyCase, coins: Coins, missing: int) -> Member:
        def rows(of: np.ndarray) -> np.ndarray:
            return np.pad(of, ((0, missing), (0, 0)), "edge")

        longer = VerifyCase(
            parent=np.arange(-1, len(case.token) + missing - 1),
            token=np.pad(case.token, (0, missing)),
            target_probs=rows(case.target_probs),
            proposal=case.proposal,
            draft_probs=None if case.draft_probs is None else rows(case.draft_probs),
        )
        return longer, Coins(np.pad(coins.accept, (0, missing)), coins.frontier)


class ReadsEveryRow(Chain):
    """Refuses a case for NaN in rows that the walk never reaches."""

    refutes = "ACCEPTANCE-107"

    @classmethod
    def tokens(cls, case: VerifyCase) -> list[int]:
        if np.isnan(case.target_probs).any():
            raise ValueError("target_probs holds NaN")
        return super().tokens(case)


class ResidualFromTheRowBehind(Chain):
    """Draws from the residual of the row that only the successor of a rejected draft is judged by."""

    refutes = "ACCEPTANCE-107"

    @classmethod
    def residual(cls, trial: Trial) -> Row:
        return owed(cls.row(trial.case.target_probs, trial.node + 1), trial.draft)


class AllMatchesAtOnce(Chain):
    """For greedy verifiers that look at the whole chain before they stop: no fault of its own."""

    @classmethod
    def matching(cls, case: VerifyCase) -> list[bool]:
        """Which drafts are the argmax of their rows; a row of NaN matches nothing."""
        pairs = zip(cls.tokens(case), case.target_probs)
        return [bool(row.argmax() == token and not np.isnan(row).any()) for token, row in pairs]

    @classmethod
    def greedily(cls, case: VerifyCase, accepted: int) -> Decision:
        """Accept that many drafts, and refuse NaN up to the row of the frontier."""
        rows = [cls.row(case.target_probs, node) for node in range(accepted + 1)]
        return Decision(tuple(range(accepted)), cls.argmax(rows[-1]))


class CountsMatches(AllMatchesAtOnce):
    """Accepts as many drafts as match their rows anywhere in the chain."""

    refutes = "ACCEPTANCE-107"

    @classmethod
    def greedy(cls, case: VerifyCase) -> Decision:
        return cls.greedily(case, sum(cls.matching(case)))


class LetsNanPass(Chain):
    """Draws from rows of NaN as if they were laws."""

    refutes = "ACCEPTANCE-108"

    @classmethod
    def row(cls, rows: np.ndarray, index: int) -> Row:
        return [float(value) for value in np.nan_to_num(rows[index])]

    @classmethod
    def pick(cls, law: Row, coin: float) -> int:
        return super().pick(law, coin) if any(law) else 0


class NanAccepts(Chain):
    """Rejects where u·q ≥ p, which is false for NaN, so that NaN accepts."""

    refutes = "ACCEPTANCE-108"

    @classmethod
    def accepts(cls, trial: Trial) -> bool:
        return not trial.u * trial.q >= trial.p

    @classmethod
    def row(cls, rows: np.ndarray, index: int) -> Row:
        values: Row = rows[index].tolist()
        return values

    @classmethod
    def pick(cls, law: Row, coin: float) -> int:
        return 0 if any(map(math.isnan, law)) else super().pick(law, coin)


class PaddingIsTheLastToken(Chain):
    """Reads a draft id of −1 as an index, which is the last token."""

    refutes = "ACCEPTANCE-109"

    @classmethod
    def tokens(cls, case: VerifyCase) -> list[int]:
        tokens: list[int] = case.token.tolist()
        return tokens


class StepsOverPadding(Chain):
    """Accepts a draft id of −1 without a test."""

    refutes = "ACCEPTANCE-109"

    @classmethod
    def tokens(cls, case: VerifyCase) -> list[int]:
        tokens: list[int] = case.token.tolist()
        return tokens

    @classmethod
    def matches(cls, case: VerifyCase, node: int, row: Row) -> bool:
        return bool(case.token[node] == -1) or super().matches(case, node, row)

    @classmethod
    def accepts(cls, trial: Trial) -> bool:
        return trial.token == -1 or super().accepts(trial)


class IgnoresTheSeed(Chain):
    """Draws its coins from a generator seeded with a constant."""

    refutes = "ACCEPTANCE-110"

    @classmethod
    def own_coins(cls, cases: Sequence[VerifyCase], seed: int) -> list[Coins]:
        return super().own_coins(cases, 0)


class JudgesByTheRowBehind(Chain):
    """Tests a draft against the row behind its own, which only its successor may be judged by."""

    refutes = "ACCEPTANCE-107"

    @classmethod
    def accepts(cls, trial: Trial) -> bool:
        return trial.u * trial.q < cls.row(trial.case.target_probs, trial.node + 1)[trial.token]


# ---- greedy


class AcceptsTheTopTwo(Chain):
    """Greedy verification accepts the second most probable token, too."""

    refutes = "ACCEPTANCE-201"

    @classmethod
    def matches(cls, case: VerifyCase, node: int, row: Row) -> bool:
        return bool(row[case.token[node]] >= sorted(row)[-2])


class JudgesByTheRootRow(Chain):
    """Greedy verification tests every draft against the row at the root."""

    refutes = "ACCEPTANCE-201"

    @classmethod
    def matches(cls, case: VerifyCase, node: int, row: Row) -> bool:
        return super().matches(case, node, cls.row(case.target_probs, 0))


class KeepsUpToTheLastMatch(AllMatchesAtOnce):
    """Greedy verification accepts everything before the deepest draft that matches its own row."""

    refutes = "ACCEPTANCE-202"

    @classmethod
    def greedy(cls, case: VerifyCase) -> Decision:
        matching = cls.matching(case)
        return cls.greedily(case, max((node + 1 for node, hit in enumerate(matching) if hit), default=0))


class GreedyBonusFromTheRowBefore(Chain):
    """After full acceptance, greedy verification publishes the argmax of the row before the last."""

    refutes = "ACCEPTANCE-203"

    @classmethod
    def greedy_frontier(cls, case: VerifyCase, row: Row, rejected: bool) -> int:
        return cls.argmax(row if rejected else cls.row(case.target_probs, max(len(case.token) - 1, 0)))


class HighestIdOnTies(Chain):
    """Takes the highest id among equally probable tokens."""

    refutes = "ACCEPTANCE-204"

    @classmethod
    def argmax(cls, row: Row) -> int:
        return len(row) - 1 - row[::-1].index(max(row))
