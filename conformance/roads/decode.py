"""The second road to decoding: one token after the other, from laws alone. No drafts, no state, no rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

Tokens = tuple[int, ...]
Law = Callable[[Tokens], Sequence[Fraction]]
"""All tokens so far → the law of the next one."""


def exact(row: Sequence[float]) -> list[Fraction]:
    """A row of floats as a law: the rationals that they are, over their sum."""
    values = [Fraction(float(v)) for v in row]
    total = sum(values)
    return [v / total for v in values]


def ended(output: Sequence[int], limit: int, stops: Iterable[int] = ()) -> bool:
    """Whether nothing follows `output`."""
    return len(output) >= limit or (len(output) > 0 and output[-1] in set(stops))


def cut(tokens: Sequence[int], limit: int, stops: Iterable[int] = ()) -> list[int]:
    """What is left of an output that would go on for ever: it ends with its first stop token, or at the limit."""
    places = [i for i, token in enumerate(tokens) if token in set(stops)]
    return list(tokens[: min([limit, len(tokens), *(i + 1 for i in places[:1])])])


def greedy(law: Law, prompt: Tokens, limit: int, stops: Iterable[int] = ()) -> list[int]:
    """The most probable token after all before it, lowest id first, until the end."""
    output: list[int] = []
    while not ended(output, limit, stops):
        row = law((*prompt, *output))
        output.append(sorted(range(len(row)), key=lambda v: (-row[v], v))[0])
    return output


def sequence_law(law: Law, prompt: Tokens, limit: int, stops: Iterable[int] = ()) -> dict[Tokens, Fraction]:
    """The law of whole outputs, by the chain rule, from the last token to the first."""

    def after(output: Tokens) -> dict[Tokens, Fraction]:
        if ended(output, limit, stops):
            return {output: Fraction(1)}
        found: dict[Tokens, Fraction] = {}
        for v, probability in enumerate(law((*prompt, *output))):
            if probability > 0:
                found |= {whole: probability * share for whole, share in after((*output, v)).items()}
        return found

    return after(())


def likely(law: Law, prompt: Tokens, length: int, floor: float) -> dict[Tokens, Fraction]:
    """The sequences of `length` tokens of which every beginning has at least the mass `floor`."""
    found: dict[Tokens, Fraction] = {(): Fraction(1)}
    for _ in range(length):
        longer = {
            (*output, v): mass * probability
            for output, mass in found.items()
            for v, probability in enumerate(law((*prompt, *output)))
        }
        found = {output: mass for output, mass in longer.items() if mass >= Fraction(floor)}
    return found
