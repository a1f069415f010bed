"""Histories worth keeping by name."""

from __future__ import annotations

from conformance.publish.history import GoBack, History, Join, Keep, Leave, Preempt, Resume, Step, Together, Turn
from conformance.publish.model import TOKENS, Model, decoded, following
from oracle.types import PADDING_ROW, ROOT_ROW


class Book:
    """A history in the making, with a model that knows which drafts are right."""

    def __init__(self) -> None:
        self.model, self.steps = Model(), list[Step]()

    def do(self, *steps: Step) -> Book:
        for step in steps:
            self.model.take(step)
            self.steps.append(step)
        return self

    def rounds(self, *turns: Turn) -> Book:
        return self.do(Together(turns))

    def chain(self, request: int, right: int, wrong: int = 0) -> Turn:
        """A chain of right drafts, and wrong ones behind them; rows in order, the root's first."""
        truth = self.model.requests[request]
        tokens: list[int] = []
        for i in range(right + wrong):
            token = following([*truth.sequence, *tokens])
            tokens.append(token if i < right else other(token))
        size = len(tokens)
        return Turn(request, tuple(range(-1, size - 1)), tuple(tokens), (*[ROOT_ROW] * truth.waits, *range(size)))

    def tree(self, request: int, depth: int, mapped: bool = False) -> Turn:
        """A right chain with a wrong sibling before each of its nodes, and a wrong node below that sibling.

        The wrong node below has the token that its right cousin has. mapped: rows backwards, with padding among them.
        """
        truth = self.model.requests[request]
        sequence, parent, token, at = truth.sequence, list[int](), list[int](), ROOT_ROW
        for _ in range(depth):
            right = following(sequence)
            below = following([*sequence, right])
            parent += [at, len(parent), at]
            token += [other(right), below, right]
            at = len(parent) - 1
            sequence.append(right)
        order = [*[ROOT_ROW] * truth.waits, *range(len(parent))]
        if mapped:
            order = [PADDING_ROW, *reversed(order), PADDING_ROW]
            order.insert(len(order) // 2, PADDING_ROW)
        return Turn(request, tuple(parent), tuple(token), tuple(order))

    def history(self) -> History:
        return History(tuple(self.steps))


def other(token: int) -> int:
    """A token that is not this one."""
    return TOKENS[(TOKENS.index(token) + 1) % len(TOKENS)]


def prompt(*places: int) -> tuple[int, ...]:
    return tuple(TOKENS[place] for place in places)


def _chains() -> History:
    """One request: all right, none, no drafts, some; and rejected drafts right before a round without any."""
    book = Book().do(Join(0, prompt(0, 1, 2, 3)))
    for right, wrong in ((3, 0), (0, 2), (0, 0), (2, 2), (1, 0), (0, 3), (0, 0), (4, 1)):
        book.rounds(book.chain(0, right, wrong))
    return book.history()


def _trees() -> History:
    """Three requests in ragged batches: trees in order, permuted rows with padding, no drafts; one starts bare."""
    book = Book().do(Join(0, prompt(4, 0, 0)), Join(1, prompt(5)), Join(2, prompt(1, 5, 2, 2, 4), waits=False))
    for depths in ((2, 1, 3), (0, 2, 1), (3, 0, 2), (1, 3, 0), (2, 2, 2)):
        book.rounds(*(book.tree(name, depth, mapped=name > 0) for name, depth in enumerate(depths)))
    return book.history()


def _ends() -> History:
    """Limits and a stop token end the members of a batch one after the other."""
    joins = [Join(0, prompt(0, 3), max_new_tokens=9), Join(1, prompt(2, 1), stop_tokens=prompt(3))]
    joins.append(Join(2, prompt(5, 4, 3), drafter=False, max_new_tokens=4))
    book = Book().do(*joins)
    for depth in (1, 2, 0, 3, 1, 2):
        going = [name for name, truth in book.model.requests.items() if truth.goes_on]
        book.rounds(*(book.tree(name, depth) for name in going))
    return book.history()


def _cut() -> History:
    """Chains, the whole of them right: a limit and a stop token end two requests inside, and a third one goes on."""
    first = prompt(2, 1)
    stop = decoded(Join(1, first), 2)[1]
    joins = [Join(0, prompt(0, 3), max_new_tokens=5), Join(1, first, stop_tokens=(stop,)), Join(2, prompt(4, 1))]
    book = Book().do(*joins)
    for right in (3, 4, 3):
        going = [name for name, truth in book.model.requests.items() if truth.goes_on]
        book.rounds(*(book.chain(name, right) for name in going))
    return book.history()


def _back() -> History:
    """States are kept, several rounds later gone back to, and gone on from in other rounds."""
    book = Book().do(Join(0, prompt(2, 0, 1)), Join(1, prompt(3, 3)))
    for right in (2, 1):
        book.rounds(book.chain(0, right, 1), book.tree(1, right)).do(Keep(0), Keep(1))
    for right in (3, 0, 2):
        book.rounds(book.chain(0, right, 2), book.tree(1, right))
    book.do(GoBack(0, 0)).rounds(book.chain(0, 1, 2), book.tree(1, 1)).do(GoBack(1, 1))
    book.rounds(book.chain(0, 2, 0), book.tree(1, 3)).do(GoBack(0, 0), GoBack(1, 0))
    return book.rounds(book.tree(0, 2), book.chain(1, 0, 3)).rounds(book.chain(0, 1), book.chain(1, 2)).history()


def _preempted() -> History:
    """One of two requests is preempted twice, and comes back with new rows of the same tokens."""
    book = Book().do(Join(0, prompt(1, 2, 3)), Join(1, prompt(4, 5)))
    book.rounds(book.chain(0, 2, 1), book.chain(1, 0, 2)).do(Preempt(1)).rounds(book.chain(0, 1, 1)).do(Resume(1))
    book.rounds(book.chain(0, 0, 2), book.chain(1, 2, 1)).rounds(book.tree(0, 1), book.tree(1, 2))
    book.do(Preempt(0), Preempt(1), Resume(1)).rounds(book.chain(1, 1, 1)).do(Resume(0))
    return book.rounds(book.chain(0, 3), book.chain(1, 0)).rounds(book.chain(0, 0, 1), book.chain(1, 1)).history()


def _shared() -> History:
    """Requests join with the rows of another one's prefix, change places, and leave beside those that go on."""
    book = Book().do(Join(0, prompt(0, 1, 2, 3, 4)))
    book.rounds(book.chain(0, 3, 1))
    first = book.model.requests[0]
    book.do(
        Join(1, (*first.sequence[:6], *prompt(1, 5)), shares=0, rows=6),
        Join(2, (*first.sequence[:3], *prompt(2)), shares=0, rows=3),
    )
    book.rounds(book.tree(2, 2), book.tree(0, 2), book.tree(1, 1))
    book.rounds(book.chain(0, 1, 2), book.chain(1, 2, 1), book.chain(2, 0, 2))
    book.rounds(book.chain(1, 0, 2), book.chain(2, 2, 1), book.chain(0, 3))
    book.do(Leave(0), Join(3, (*book.model.requests[1].sequence[:9], *prompt(0)), shares=1, rows=9))
    book.rounds(book.tree(3, 2, mapped=True), book.tree(2, 1), book.tree(1, 2)).do(Leave(2))
    return book.rounds(book.chain(1, 1), book.chain(3, 2)).rounds(book.chain(3, 1, 1), book.chain(1, 1, 1)).history()


def _mixed(limit: int | None) -> History:
    """All at once: prefixes, preemption, states that are gone back to, places that change, padding; and a limit."""
    book = Book().do(Join(0, prompt(5, 5, 1)), Join(1, prompt(5, 5, 2), max_new_tokens=limit))
    book.rounds(book.tree(1, 2), book.tree(0, 1)).do(Keep(0), Keep(1))
    book.rounds(book.tree(0, 3, mapped=True), book.chain(1, 1, 2)).do(Preempt(0))
    book.do(Join(2, (*book.model.requests[1].sequence[:7], *prompt(3)), drafter=False, shares=1, rows=7))
    book.rounds(book.chain(2, 2, 2), book.tree(1, 1)).do(Resume(0), GoBack(1, 0))
    book.rounds(book.tree(2, 1, mapped=True), book.tree(1, 2), book.chain(0, 0, 3)).do(Keep(2), Leave(0))
    book.rounds(book.chain(1, 0), book.chain(2, 3)).do(GoBack(2, 0)).rounds(book.tree(2, 2), book.tree(1, 0))
    return book.rounds(book.chain(1, 2, 1)).rounds(book.chain(2, 1)).history()


CHAINS, TREES, ENDS, CUT = _chains(), _trees(), _ends(), _cut()
BASIC = (CHAINS, TREES)
BACK, PREEMPTED, SHARED = _back(), _preempted(), _shared()
MIXED, MIXED_WITH_AN_END = _mixed(None), _mixed(14)
