"""Runs drawn by Hypothesis: of one depth, of several, with pauses and stop cuts, counted by several workers."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from conformance.metrics.cases import Round, Runs, run
from oracle.types import RoundsCase

DEPTHS = (1, 2, 3, 4, 5, 7, 8)


def _rounds(depth: int) -> list[Round]:
    """Every round of that depth; those that no stop cuts are as many as those that one does."""
    found = []
    for accepted in range(depth + 1):
        found += [(depth, accepted, accepted + 1)] * max(accepted, 1)
        found += [(depth, accepted, emitted) for emitted in range(1, accepted + 1)]
    return found


_OF_DEPTH = {depth: _rounds(depth) for depth in (0, *DEPTHS)}
_DRAFTED = [one for depth in DEPTHS for one in _OF_DEPTH[depth][:: max(depth - 2, 1)]]
_ANY = _OF_DEPTH[0] * (len(_DRAFTED) // 4) + _DRAFTED


def one_depth() -> st.SearchStrategy[RoundsCase]:
    """Every round drafts as many tokens, at least one."""
    return (
        st.sampled_from(DEPTHS)
        .flatmap(lambda k: st.lists(st.sampled_from(_OF_DEPTH[k]), min_size=1, max_size=9))
        .map(run)
    )


def _mixed() -> st.SearchStrategy[Sequence[Round]]:
    drafted, others = st.sampled_from(_DRAFTED), st.lists(st.sampled_from(_ANY), max_size=8)
    return st.tuples(others, drafted, others).map(lambda parts: [*parts[0], parts[1], *parts[2]])


def several_depths() -> st.SearchStrategy[RoundsCase]:
    """Rounds of any depth, some without drafts; one at least has some."""
    return _mixed().map(run)


def off() -> st.SearchStrategy[RoundsCase]:
    """Rounds without drafts alone."""
    return st.integers(1, 9).map(lambda n: run(_OF_DEPTH[0] * n))


def anything() -> st.SearchStrategy[RoundsCase]:
    """Any of these."""
    return st.one_of(several_depths(), one_depth(), off())


def workers() -> st.SearchStrategy[RoundsCase]:
    """Rounds that two or three workers counted, some with drafts."""
    ids = st.lists(st.sampled_from([0, 1, 5]), min_size=17, max_size=17)
    return st.tuples(_mixed(), ids).map(lambda drawn: run(drawn[0], drawn[1][: len(drawn[0])]))


def in_turn() -> st.SearchStrategy[Runs]:
    """Two runs in turn, and between them one without drafts, asked before and after each."""
    return st.tuples(off(), several_depths(), several_depths()).map(
        lambda three: Runs((three[0], three[1], three[0], three[2], three[1], three[0]))
    )
