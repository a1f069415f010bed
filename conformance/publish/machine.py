"""The machine that makes histories: requests come and go, draft, verify, publish, go back, and are preempted.

Hypothesis picks the rules; what a rule draws it writes down as a step, which is then taken. A failing run is therefore
a history, and replays without the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from conformance.check import Check, Search
from conformance.publish import asking
from conformance.publish.history import GoBack, History, Join, Keep, Leave, Preempt, Resume, Step, Together, Turn
from conformance.publish.model import TOKENS, Model, Truth, following
from conformance.publish.serving import Clause, Serving
from oracle.types import PADDING_ROW, ROOT_ROW

MOST_REQUESTS = 4
MOST_DRAFTS = 7
STYLES = ("chains", "trees", "rows")
"""What is verified: chains; trees; trees whose rows are permuted, with padding between them."""


Rule = Callable[..., Any]


def may(kind: str) -> Callable[[Rule], Rule]:
    """A rule of the checks that allow this."""
    return precondition(lambda machine: kind in machine.allowed)


class Machine(RuleBasedStateMachine):
    """allowed: "end", "keep", "preempt", "share", "move": what may happen beside rounds.

    With none of them, requests come in groups and take part in every round, in the order they came.
    """

    def __init__(self, check: Check, clause: Clause, allowed: Collection[str], search: Search) -> None:
        super().__init__()
        self.search, self.allowed = search, frozenset(allowed)
        self.serving = Serving(check, clause)
        self.model = Model(asking.draft_kv(check))  # it goes on where a search has ended and nothing is served
        self.steps: list[Step] = []
        self.style = STYLES[0]
        self.joined = 0

    def do(self, step: Step) -> None:
        self.steps.append(step)
        self.search.step(History(tuple(self.steps)), lambda: self.serving.take(step))
        self.model.take(step)

    @property
    def truths(self) -> dict[int, Truth]:
        return self.model.requests

    def those(self, wanted: Any) -> list[int]:
        return [name for name, truth in self.truths.items() if wanted(truth)]

    # ---- rules

    @initialize(style=st.sampled_from(STYLES), data=st.data())
    def begin(self, style: str, data: st.DataObject) -> None:
        self.style = style
        self.group(data)

    @precondition(lambda machine: not machine.those(lambda truth: truth.ended is None))
    @rule(data=st.data())
    def group(self, data: st.DataObject) -> None:
        """All have finished: they leave, and others come."""
        for name in list(self.truths):
            self.do(Leave(name))
        for _ in range(data.draw(st.integers(1, MOST_REQUESTS))):
            self.join(data, None)

    @precondition(lambda machine: machine.those(lambda truth: truth.goes_on))
    @rule(data=st.data(), drafts=st.sampled_from((MOST_DRAFTS, MOST_DRAFTS, 2, 0)))
    def one_round(self, data: st.DataObject, drafts: int) -> None:
        """Draft so many nodes at most, verify and publish."""
        self.round(data, drafts)

    @precondition(lambda machine: machine.those(lambda truth: truth.goes_on))
    @rule(data=st.data())
    def another_round(self, data: st.DataObject) -> None:
        """Rounds are what most steps are."""
        self.round(data, MOST_DRAFTS)

    @may("keep")
    @precondition(lambda machine: machine.truths)
    @rule(data=st.data())
    def keep(self, data: st.DataObject) -> None:
        self.do(Keep(data.draw(st.sampled_from(self.those(lambda truth: True)))))

    @may("keep")
    @precondition(lambda machine: machine.model.kept)
    @rule(data=st.data())
    def go_back(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(list(self.model.kept)))
        self.do(GoBack(name, data.draw(st.integers(0, len(self.model.kept[name]) - 1))))

    @may("preempt")
    @precondition(lambda machine: machine.those(lambda truth: truth.goes_on))
    @rule(data=st.data())
    def preempt(self, data: st.DataObject) -> None:
        self.do(Preempt(data.draw(st.sampled_from(self.those(lambda truth: truth.goes_on)))))

    @may("preempt")
    @precondition(lambda machine: machine.those(lambda truth: truth.preempted))
    @rule(data=st.data())
    def resume(self, data: st.DataObject) -> None:
        self.do(Resume(data.draw(st.sampled_from(self.those(lambda truth: truth.preempted)))))

    @may("share")
    @precondition(lambda machine: len(machine.truths) < MOST_REQUESTS)
    @rule(data=st.data())
    def join_with_a_prefix(self, data: st.DataObject) -> None:
        held = self.those(lambda truth: truth.kv)
        self.join(data, data.draw(st.sampled_from(held)) if held else None)

    @may("move")
    @precondition(lambda machine: machine.truths)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self.do(Leave(data.draw(st.sampled_from(self.those(lambda truth: True)))))

    # ---- what the rules draw

    def join(self, data: st.DataObject, shares: int | None) -> None:
        prompt = [TOKENS[i] for i in data.draw(st.lists(st.integers(0, len(TOKENS) - 1), min_size=1, max_size=6))]
        waits, drafter = data.draw(st.booleans()), data.draw(st.booleans())
        rows = 0
        if shares is not None:
            other = self.truths[shares]
            rows = data.draw(st.integers(1, len(other.kv)))
            prompt = [*other.sequence[:rows], *prompt]
        ends = data.draw(st.integers(0, 5)) if "end" in self.allowed else 0
        stop = (TOKENS[data.draw(st.integers(0, len(TOKENS) - 1))],) if ends in (1, 2) else ()
        most = data.draw(st.integers(1, 25)) if ends in (2, 3) else None
        self.do(Join(self.joined, tuple(prompt), waits, drafter, stop, most, shares, rows))
        self.joined += 1

    def round(self, data: st.DataObject, drafts: int) -> None:
        names = self.those(lambda truth: truth.goes_on)
        if "move" in self.allowed:
            names = data.draw(st.lists(st.sampled_from(names), unique=True))
        self.do(Together(tuple(self.turn(data, name, drafts) for name in names)))

    def turn(self, data: st.DataObject, name: int, drafts: int) -> Turn:
        truth, parent, token = self.truths[name], [], []  # type: ignore[var-annotated]
        prefix: list[list[int]] = []
        # of each node: where it hangs, and whether it is what the model says (0 to 5) or another token
        for where, what in data.draw(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 8)), max_size=drafts)):
            node = len(parent)
            above = node - 1 if self.style == "chains" else where % (node + 1) - 1
            before = truth.sequence if above == ROOT_ROW else prefix[above]
            taken = {token[n] for n in range(node) if parent[n] == above}
            right = TOKENS.index(following(before))
            free = [TOKENS[(right + shift) % len(TOKENS)] for shift in range(len(TOKENS))]
            free = [one for one in free if one not in taken]
            if not free:
                continue
            parent.append(above)
            token.append(free[max(what - 5, 0) % len(free)])
            prefix.append([*before, token[-1]])
        order = [*([ROOT_ROW] if truth.waits else []), *range(len(parent))]
        if self.style == "rows":
            order = data.draw(st.permutations([*order, *[PADDING_ROW] * data.draw(st.integers(0, 2))]))
        return Turn(name, tuple(parent), tuple(token), tuple(order))
