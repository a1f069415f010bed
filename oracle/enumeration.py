"""Every branch of a random program with its probability, by replaying it: exact where its laws are rational."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import TypeVar

Result = TypeVar("Result")


class Run:
    """One run of a program: its choices follow a script, and past its end the first possible one is made.

    It is a `Chance` of `oracle.walks`.
    """

    def __init__(self, script: tuple[int, ...]) -> None:
        self.script = script
        self.made: list[int] = []
        self.weight = Fraction(1)
        self.left_for_later: list[tuple[int, ...]] = []

    def choose(self, law: Sequence[Fraction]) -> int:
        """An outcome of `law` that has mass; the others, where new, are left for later runs."""
        possible = [v for v, probability in enumerate(law) if probability > 0]
        step = len(self.made)
        if step < len(self.script):
            choice = self.script[step]
        else:
            choice = possible[0]
            self.left_for_later.extend((*self.made, other) for other in possible[1:])
        self.made.append(choice)
        self.weight *= law[choice]
        return choice

    def draw(self, law: Sequence[Fraction], node: int | None = None) -> int:
        return self.choose(law)

    def accepts(self, node: int, p: Fraction, q: Fraction) -> bool:
        """Both outcomes of u·q < p for a uniform u, with their probabilities."""
        chance = min(Fraction(1), p / q) if q > 0 else Fraction(1 if p > 0 else 0)
        return self.choose([chance, 1 - chance]) == 0


def branches(program: Callable[[Run], Result]) -> Iterator[tuple[Fraction, Result]]:
    """Run `program` once for each way that its choices fall: the way's probability, and what it returned.

    The program asks its `Run` for every random choice and is otherwise a function of nothing.
    """
    scripts: list[tuple[int, ...]] = [()]
    while scripts:
        run = Run(scripts.pop())
        result = program(run)
        scripts.extend(run.left_for_later)
        yield run.weight, result
