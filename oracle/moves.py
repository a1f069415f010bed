"""Moves inside one array, where places that are read are also written: the order in which nothing is lost."""

from __future__ import annotations

from collections.abc import Mapping

from oracle.blocks import SCRATCH


def ordered(moves: Mapping[int, int]) -> list[tuple[int, int]]:
    """Destination → source, sources distinct, as steps (destination, source) that each read what was there at first.

    A place is written once nobody reads it any more. Where only cycles are left, one place of a cycle is put aside
    (to `SCRATCH`), which makes it free.
    """
    waiting = {to: source for to, source in moves.items() if to != source}
    reader = {source: to for to, source in waiting.items()}
    ready = [to for to in waiting if to not in reader]
    steps = []
    while waiting:
        if not ready:
            place = next(iter(waiting))
            steps.append((SCRATCH, place))
            waiting[reader[place]] = SCRATCH
            ready.append(place)
        to = ready.pop()
        source = waiting.pop(to)
        steps.append((to, source))
        if source in waiting:
            ready.append(source)
    return steps
