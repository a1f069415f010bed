"""The golden cases of verification by coins: chains, trees, batches of both, and other coin schemes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from conformance.acceptance.cases import LAST_COIN, WITNESSES, coins
from conformance.acceptance.golden_making import (
    APART_BELOW,
    APART_FORK,
    DRAWN_BELOW,
    DRAWN_FORK,
    EIGHTH,
    EQUAL,
    FRONTIER,
    GAPS,
    IMPOSSIBLE,
    IMPOSSIBLE_POINT,
    INCLUSIVE,
    LONG,
    NONE,
    ODDS,
    OPERATOR,
    PER_NODE,
    POINT_BELOW,
    POINT_FORK,
    POINTS,
    RISING,
    SIX,
    SURE,
    ZEROS,
    Coined,
    Inclusive,
    Padded,
    Refused,
    Rounded,
    asked,
    line,
    of,
    poisoned,
    sampled,
)
from conformance.acceptance.scheme_cases import OPERATOR_TIES, SCHEME_BATCHES
from conformance.fixtures.flags import FLOAT64, UNCHANGED
from conformance.fixtures.golden import Golden

_FIRST, _SECOND, _CROSSING = SCHEME_BATCHES
_CUTS = [
    *asked(
        POINT_FORK,
        *(
            ([u, 0.9, 0.05, v], f)
            for u, v, f in ((0.3, 0.5, 0.5), (0.45, 0.5, 0.3), (0.6, 0.875, 0.6), (0.9, 0.25, 0.2))
        ),
    ),
    *asked(
        POINT_BELOW,
        ([0.5, 0.25, 0.875, 0.5], 0.5),
        ([0.75, 0.125, 0.875, 0.25], 0.7),
        ([0.0625, 0.75, 0.125, 0.5], 0.4),
    ),
]
_MATCHES = [
    *asked(DRAWN_FORK, ([0.9, 0.125, 0.5, 0.3], 0.6), ([0.125, 0.75, 0.5, 0.5], 0.3), ([0.3, 0.5, 0.125, 0.4], 0.7)),
    *asked(DRAWN_BELOW, ([0.5, 0.9, 0.25, 0.5], 0.4), ([0.25, 0.25, 0.9, 0.6], 0.7)),
]
_BLOCKS = [
    *asked(RISING, ([0.75, 0.5, 0.95], 0.7), ([0.25, 0.875, 0.99], 0.2), ([0.9, 0.25, 0.5], 0.8)),
    *asked(ODDS, ([0.375, 0.24], 0.6), ([0.375, 0.26], 0.3), ([0.75, 0.9], 0.9)),
]


def refused(told: str, members: Sequence[Coined], names: str) -> Golden:
    """NaN in a row that is read."""
    made = sampled(told, members, 108, flags=(PER_NODE, "hostile"), kind=Refused)
    return dataclasses.replace(made, names=names)  # type: ignore[call-arg]


_FORCED = line([0, 1], [(8, 8, 0), (0, 6, 10), (16, 0, 0)], [(12, 4, 0), (0, 12, 4), (4, 4, 8)])
"""Accepted below 2/3 and 1/2; whatever is left of a row is one token."""
_FORCED_POINTS = line([0, 2], [(6, 10, 0), (0, 5, 11), (0, 16, 0)])
_NEVER = line([2, 0], [(0, 0, 16), (0, 16, 0), (9, 7, 0)], [(2, 4, 10), (8, 6, 2), (4, 8, 4)])
_FREELY = line([0], [(8, 8, 0), (0, 0, 16)], [(0, 8, 8), (4, 8, 4)])
_ACCEPTS = (PER_NODE,)
"""The frontier is the only token that can be, whatever its coin means."""

SAMPLED: tuple[Golden, ...] = (
    sampled(
        "Two sampled drafts around their thresholds, where every frontier is certain",
        asked(_FORCED, ([0.66, 0.49], 0.5), ([0.67, 0.25], 0.25), ([0.5, 0.51], 0.75)),
        *(303, 601, 605),
        flags=_ACCEPTS,
    ),
    sampled(
        "Two point proposals around their thresholds, where every frontier is certain",
        asked(_FORCED_POINTS, ([0.37, 0.68], 0.5), ([0.38, 0.25], 0.25), ([0.25, 0.69], 0.75)),
        *(402, 601, 605),
        flags=_ACCEPTS,
    ),
    sampled(
        "The coin zero lets no impossible draft through to a certain frontier",
        asked(_NEVER, ([0.5, 0.0], 0.5)),
        *(302, 303),
        flags=_ACCEPTS,
    ),
    sampled(
        "A draft of no draft mass is accepted, and the frontier behind it is certain",
        asked(_FREELY, ([0.96875], 0.5), ([0.0], 0.25)),
        *(603, 605),
        flags=_ACCEPTS,
    ),
    sampled(
        "A draft likelier for the target is accepted by every coin, the next one below 4/5",
        asked(SURE, ([0.96875, 0.79], 0.78125), ([0.5, 0.81], 0.4), ([0.99, 0.5], 0.2)),
        *(101, 102, 501, 601, 605),
    ),
    sampled(
        "Both drafts are accepted below one half, and the residual is another law than the target's",
        asked(ODDS, ([0.495, 0.495], 0.6), ([0.505, 0.25], 0.3), ([0.25, 0.505], 0.7), ([0.75, 0.125], 0.55)),
        *(401, 501, 601, 604),
    ),
    sampled(
        "Point proposals are accepted below the target's probability, and leave its row without the token",
        asked(
            POINTS,
            ([0.56, 0.68, 0.37], 0.6),
            ([0.565, 0.25, 0.25], 0.9),
            ([0.25, 0.69, 0.25], 0.7),
            ([0.125, 0.5, 0.38], 0.66),
        ),
        *(402, 502, 601, 604),
    ),
    sampled(
        "Frontier coins at both ends stay where the target has mass",
        asked(
            GAPS,
            ([0.875, 0.5], 0.0),
            ([0.875, 0.5], LAST_COIN),
            ([0.5, 0.25], 0.0),
            ([0.5, 0.25], LAST_COIN),
            ([0.5, 0.875], 0.0),
        ),
        *(303, 604, 605),
    ),
    sampled(
        "A draft that the target rules out is rejected by the smallest coin",
        [*asked(IMPOSSIBLE, ([0.25, 2.0**-24], 0.4)), *asked(IMPOSSIBLE_POINT, ([0.25, 2.0**-24], 0.9))],
        *(301, 303, 604),
    ),
    sampled(
        "A draft that the target rules out is rejected by the coin zero",
        of(WITNESSES["impossible_draft_at_coin_zero"]),
        302,
    ),
    sampled("A draft of no draft mass is accepted", of(WITNESSES["draft_of_no_draft_mass"]), 603, 605),
    sampled(
        "A draft with p = q is accepted by every coin",
        asked(EQUAL, ([0.0, 0.25], 0.5), ([0.96875, 0.75], 0.9), ([0.5, 0.96875], 0.1)),
        *(602, 605),
    ),
    sampled(
        "One unit in the last place is no residual, and the frontier comes from the target row",
        of(WITNESSES["no_residual_left"]),
        304,
        flags=(PER_NODE, FRONTIER, FLOAT64),
        kind=Rounded,
    ),
    sampled(
        "Six drafts are accepted in a row", asked(LONG, ([0.9375, 0.875, 0.96875, 0.75, 0.625, 0.9375], 0.4)), 605, 606
    ),
    sampled(
        "A coin between p/q and p/q rounded to two digits", asked(EIGHTH, ([0.428], 0.45), ([0.43], 0.52)), 601, 604
    ),
    sampled(
        "Without drafts the frontier coin alone is spent",
        of(WITNESSES["no_drafts"]),
        103,
        605,
        flags=(FRONTIER, "empty"),
    ),
    sampled(
        "Chains of different lengths and kinds, one of them empty, two of one shape",
        [
            (NONE, coins([], 0.3)),
            (SURE, coins([0.5, 0.79], 0.6)),
            (POINTS, coins([0.5, 0.25, 0.125], 0.25)),
            (ODDS, coins([0.25, 0.75], 0.7)),
            (EQUAL, coins([0.75, 0.5], 0.5)),
        ],
        *(104, 105, 106, 606),
        flags=(PER_NODE, FRONTIER, "batch"),
    ),
    sampled(
        "A short chain beside a longer one, and the longer one beside it",
        [
            (EIGHTH, coins([0.25], 0.8)),
            (ODDS, coins([0.375, 0.25], 0.25)),
            (EIGHTH, coins([0.75], 0.5)),
        ],
        *(105, 106),
        flags=(PER_NODE, FRONTIER, "batch", UNCHANGED),
    ),
    sampled(
        "NaN in the rows behind the stop is read by nobody",
        [
            (poisoned(POINTS, [2, 3]), coins([0.25, 0.75, 0.125], 0.55)),
            (poisoned(ODDS, [1, 2], [1, 2]), coins([0.75, 0.125], 0.3)),
        ],
        *(107, 604, 803),
        flags=(PER_NODE, FRONTIER, "poison", UNCHANGED),
    ),
    sampled(
        "A leaf's draft row is read by nobody",
        [(poisoned(SURE, [], [2]), coins([0.25, 0.25], 0.5))],
        *(107, 605),
        flags=(PER_NODE, FRONTIER, "poison"),
    ),
    *(
        refused(told, of(WITNESSES[name]) if isinstance(name, str) else name, names)
        for told, name, names in (
            ("NaN in the row at the root is refused", "nan_at_the_root", "cases[0].target_probs"),
            ("NaN in the draft row is refused", "nan_in_the_draft_row", "cases[0].draft_probs"),
            (
                "NaN in the row behind an accepted draft is refused",
                [(EIGHTH, coins([0.75], 0.5)), (poisoned(SURE, [2]), coins([0.25, 0.5], 0.5))],
                "cases[1].target_probs",
            ),
        )
    ),
    *(
        sampled(told, of(WITNESSES[name]), 109, flags=(PER_NODE, "hostile"), kind=Padded)
        for name, told in (
            ("padded_draft", "A draft id of −1 behind an accepted draft is padding"),
            ("padded_sampled_draft", "A draft id of −1 of a sampled proposal is padding"),
            ("padding_read_as_the_last_token", "A draft id of −1 is not the last token, which the coin would accept"),
        )
    ),
    *(
        sampled(
            f"Where u·q equals p the draft is rejected: {told}",
            of(batch),
            607,
            flags=(PER_NODE, FRONTIER, OPERATOR, "ties"),
        )
        for batch, told in zip(
            OPERATOR_TIES[1:], ("an eighth, a half and a quarter", "the last token", "a point proposal")
        )
    ),
    sampled(
        "Where u·q equals p the draft is accepted, by those who say so",
        of(OPERATOR_TIES[0]),
        607,
        flags=(PER_NODE, FRONTIER, INCLUSIVE, "ties"),
        kind=Inclusive,
    ),
    sampled(
        "Three point proposals: each is tested against what the rejected ones left",
        asked(
            POINT_FORK,
            *(
                ([a, b, c, 0.25], f)
                for a, b, c, f in (
                    (0.32, 0.26, 0.5, 0.5),
                    (0.3, 0.9, 0.9, 0.7),
                    (0.33, 0.28, 0.49, 0.9),
                    (0.5, 0.75, 0.51, 0.1),
                )
            ),
        ),
        *(305, 405, 608),
    ),
    sampled(
        "Independent siblings, the first two of them twins",
        asked(
            DRAWN_FORK,
            *(
                ([a, b, c, 0.5], f)
                for a, b, c, f in (
                    (0.54, 0.5, 0.5, 0.5),
                    (0.57, 0.25, 0.26, 0.4),
                    (0.75, 0.5, 0.9, 0.2),
                    (0.6, 0.1, 0.125, 0.8),
                )
            ),
        ),
        *(404, 608, 609),
    ),
    sampled(
        "Siblings drawn without replacement: the draft row loses the tokens of the rejected ones",
        asked(
            APART_FORK,
            ([0.49, 0.5, 0.5, 0.5], 0.5),
            ([0.51, 0.49, 0.9, 0.5], 0.3),
            ([0.51, 0.51, 0.66, 0.5], 0.7),
            ([0.75, 0.6, 0.67, 0.75], 0.45),
        ),
        *(406, 608),
    ),
    sampled(
        "Point proposals below an accepted node are tested against what is left of its row",
        asked(
            POINT_BELOW,
            ([0.5, 0.18, 0.75, 0.5], 0.4),
            ([0.5, 0.25, 0.14, 0.75], 0.3),
            ([0.5, 0.5, 0.5, 0.5], 0.6),
            ([0.75, 0.2, 0.16, 0.25], 0.8),
        ),
        *(505, 609),
    ),
    sampled(
        "Independent siblings below an accepted node",
        asked(
            DRAWN_BELOW,
            ([0.5, 0.33, 0.75, 0.5], 0.4),
            ([0.5, 0.5, 0.01, 0.75], 0.3),
            ([0.5, 0.75, 0.5, 0.5], 0.7),
            ([0.75, 0.34, 0.25, 0.25], 0.9),
        ),
        *(504, 609),
    ),
    sampled(
        "Siblings drawn without replacement below an accepted node",
        asked(
            APART_BELOW,
            ([0.5, 0.37, 0.75, 0.5], 0.4),
            ([0.5, 0.38, 0.53, 0.75], 0.3),
            ([0.5, 0.75, 0.54, 0.5], 0.7),
            ([0.75, 0.5, 0.25, 0.25], 0.9),
        ),
        *(506, 609),
    ),
    sampled(
        "The path leads through the fourth and the sixth node",
        asked(SIX, ([0.75, 0.375, 0.5, 0.5, 0.5, 0.25, 0.5], 0.6)),
        609,
    ),
    sampled(
        "After rejected siblings no impossible token is published",
        asked(ZEROS, ([0.5, 0.9, 0.001], LAST_COIN), ([0.75, 0.99, 0.5], 0.0)),
        *(305, 608),
    ),
    sampled(
        "Trees of one size and different shapes, beside chains",
        [
            (POINT_FORK, coins([0.5, 0.25, 0.5, 0.125], 0.6)),
            (GAPS, coins([0.25, 0.25], 0.3)),
            (POINT_BELOW, coins([0.5, 0.5, 0.125, 0.75], 0.7)),
            (DRAWN_BELOW, coins([0.25, 0.125, 0.5, 0.5], 0.2)),
        ],
        *(111, 609),
        flags=(PER_NODE, FRONTIER, "batch"),
    ),
    sampled("Two chains of which each coin scheme accepts another prefix", of(_FIRST) + of(_SECOND), 610, 606),
    *(
        sampled(f"{told}, by the scheme {scheme}", members, *clauses, flags=(f"coin_scheme={scheme}", FRONTIER))
        for scheme, told, members, *clauses in (
            (
                "per_parent",
                "A chain and a fork that other schemes decide otherwise",
                of(_FIRST) + of(_CROSSING),
                610,
                611,
            ),
            ("per_parent", "One coin is cut into the masses of three children", _CUTS[:4], 405, 611),
            ("per_parent", "A coin cut below an accepted node", _CUTS[4:], 505, 611),
            (
                "sample_and_match",
                "A chain and a fork that others decide otherwise",
                of(_SECOND) + of(_CROSSING),
                610,
                611,
            ),
            (
                "sample_and_match",
                "The token drawn is carried by twins, and the first is stepped into",
                _MATCHES[:3],
                404,
                611,
            ),
            ("sample_and_match", "The token drawn below an accepted node", _MATCHES[3:], 505, 611),
            ("block", "Two chains that other schemes decide otherwise", of(_SECOND) + of(_FIRST), 610, 611),
            ("block", "A weight that falls and grows again", _BLOCKS[:3], 611, 605),
            ("block", "Coins around the test of a prefix before the end", _BLOCKS[3:], 611, 604),
        )
    ),
)
