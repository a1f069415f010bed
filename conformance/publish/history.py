"""Many rounds of many requests as plain data: steps that replay without the machine that found them."""

from __future__ import annotations

from dataclasses import dataclass

from conformance.casefile import storable


@storable
@dataclass(frozen=True)
class Join:
    """A request comes, prefilled.

    waits: its last token has no KV yet; otherwise nothing is pending. drafter: it has a drafter's rows. shares: the
    request whose first `rows` rows it has, too; None where all are its own. stop_tokens, max_new_tokens: its limits.
    """

    request: int
    prompt: tuple[int, ...]
    waits: bool = True
    drafter: bool = True
    stop_tokens: tuple[int, ...] = ()
    max_new_tokens: int | None = None
    shares: int | None = None
    rows: int = 0


@storable
@dataclass(frozen=True)
class Turn:
    """One request's part of a round: parent and token of each drafted node, and the rows of the verification.

    order: the node of each row, −1 the root's, −2 padding. What is accepted follows from the sequential model.
    """

    request: int
    parent: tuple[int, ...]
    token: tuple[int, ...]
    order: tuple[int, ...]


@storable
@dataclass(frozen=True)
class Together:
    """A round: these requests are verified and published in one batch, in this order."""

    turns: tuple[Turn, ...]


@storable
@dataclass(frozen=True)
class Keep:
    """The state of a request is kept, beside the ones kept before."""

    request: int


@storable
@dataclass(frozen=True)
class GoBack:
    """A request goes back to the `to`-th state that was kept of it."""

    request: int
    to: int


@storable
@dataclass(frozen=True)
class Preempt:
    """The rows of a request are given up, and whatever was drafted for it; its tokens stay."""

    request: int


@storable
@dataclass(frozen=True)
class Resume:
    """A preempted request comes back, with rows that prefill made anew."""

    request: int


@storable
@dataclass(frozen=True)
class Leave:
    """A request leaves, finished or not."""

    request: int


Step = Join | Together | Keep | GoBack | Preempt | Resume | Leave


@storable
@dataclass(frozen=True)
class History:
    """Steps in the order they were taken; where a check failed, the last one is the step that diverged."""

    steps: tuple[Join | Together | Keep | GoBack | Preempt | Resume | Leave, ...]
