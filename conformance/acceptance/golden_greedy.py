"""The golden cases of verification by argmax: chains, trees, batches of both, and what is refused."""

from __future__ import annotations

from conformance.acceptance.cases import WITNESSES
from conformance.acceptance.golden_making import NONE, Padded, Refused, greedy, ids, line, poisoned, tree
from conformance.fixtures.flags import UNCHANGED
from conformance.fixtures.golden import Golden

_AGREED = line([2, 0, 1], [(3, 4, 9), (10, 1, 5), (2, 8, 6), (7, 4, 5)])
"""Three drafts that are the most probable tokens of their rows; after them another token is."""
_PARTED = line([2, 1, 0], [(3, 4, 9), (8, 6, 2), (12, 1, 3), (5, 9, 2)])
"""The second draft is the second most probable token of its row; the third would match its own row again."""
_EARLY = line([1, 0], [(3, 4, 9), (10, 2, 4), (1, 12, 3)])
"""The first draft is the second most probable token, the second one matches its row."""
_SHORT = line([1], [(1, 11, 4), (9, 2, 5)])
"""Behind its one draft token 0 is the most probable."""
_FORK = tree(
    (-1, -1, 0, 1, 1, 4),
    (0, 2, 1, 1, 0, 2),
    [(3, 4, 9), (1, 9, 6), (8, 3, 5), (6, 1, 9), (2, 10, 4), (7, 8, 1), (2, 3, 11)],
)
"""The second child carries the most probable token, and below it the second one again; its own child does not."""
_TWINS = tree(
    (-1, -1, -1, 0, 1),
    (0, 2, 2, 1, 0),
    [(4, 2, 10), (3, 9, 4), (9, 5, 2), (2, 11, 3), (6, 7, 3), (1, 5, 10)],
    [(5, 4, 7)] * 6,
)
"""Two of the root's three children carry its most probable token; what is below the two differs."""
_LEAF = tree((-1, 0, 0), (1, 0, 2), [(2, 9, 5), (4, 1, 11), (10, 2, 4), (3, 12, 1)])
_DEEP = tree(
    (-1, -1, -1, 1, 2, 1, 5, 5),
    (0, 1, 2, 0, 1, 2, 1, 0),
    [(4, 10, 2), (9, 4, 3), (2, 3, 11), (12, 3, 1), (5, 8, 3), (1, 9, 6), (11, 2, 3), (4, 7, 5), (3, 2, 11)],
)
"""Eight nodes, the path through the sixth and the eighth."""
_LATE_TIE = line([1, 2], [(4, 6, 6), (3, 5, 8), (7, 2, 7)])
_WRONG_TIE = line([2, 2], [(4, 6, 6), (3, 5, 8), (7, 2, 7)])
_ALL_TIED = line([0], [(4, 4, 4, 4), (5, 6, 0, 5)])

GREEDY: tuple[Golden, ...] = (
    greedy("Every draft is the most probable token, and after them another one is", [_AGREED], 101, 102, 201, 203),
    greedy("The walk stops at the second draft, although the third matches its row", [_PARTED], 102, 202, 203),
    greedy("The first draft is the second most probable token", [_EARLY], 201, 202),
    greedy("Without drafts the frontier is published alone", [NONE], 103, 203, flags=("empty",)),
    greedy("Of equally probable tokens the lowest id is drafted", [_LATE_TIE], 204, flags=("ties",)),
    greedy("Of equally probable tokens the higher id is drafted", [_WRONG_TIE, _ALL_TIED], 204, flags=("ties",)),
    greedy(
        "Chains of different lengths, one of them empty, two of one shape",
        [_AGREED, _SHORT, NONE, _PARTED, _EARLY],
        *(104, 105, 106, 201),
        flags=("batch",),
    ),
    greedy(
        "The longest chain comes last, and a short one ends before token 0", [_SHORT, _AGREED], 106, flags=("batch",)
    ),
    greedy(
        "NaN in the rows behind the stop is read by nobody",
        [poisoned(_PARTED, [2, 3]), poisoned(_EARLY, [1, 2])],
        *(107, 202),
        flags=("poison", UNCHANGED),
    ),
    greedy("The second child carries the token, and below it a second one", [_FORK], 102, 205, 206),
    greedy("Of twins the first is stepped into, with what is below it", [_TWINS], 205),
    greedy("A walk that ends at a leaf publishes what its own row says", [_LEAF], 206),
    greedy("The path leads through the sixth and the eighth node", [_DEEP], 205, 206),
    greedy(
        "Trees of one size and different shapes, beside a chain",
        [_LEAF, _AGREED, tree((-1, -1, 1), (0, 1, 2), [(2, 9, 5), (4, 1, 11), (3, 2, 11), (8, 5, 3)]), _FORK],
        *(105, 111, 205),
        flags=("batch",),
    ),
    greedy(
        "NaN in rows that hang below another child is read by nobody",
        [poisoned(_FORK, [1, 3])],
        107,
        111,
        flags=("poison",),
    ),
    Refused(
        "verify_greedy",
        ids([108]),
        "NaN in the row at the root is refused",
        {"cases": [poisoned(_AGREED, [0])]},
        ("hostile",),
        "cases[0].target_probs",
    ),
    Refused(
        "verify_greedy",
        ids([108]),
        "NaN in the row behind an accepted draft is refused",
        {"cases": [_SHORT, poisoned(_AGREED, [2])]},
        ("hostile",),
        "cases[1].target_probs",
    ),
    *(
        Padded("verify_greedy", ids([109]), told, {"cases": list(WITNESSES[name].cases)}, ("hostile",))
        for name, told in (
            ("padded_draft", "A draft id of −1 behind an accepted draft is padding"),
            ("padding_read_as_the_last_token", "A draft id of −1 is not the last token, which is the likely one"),
        )
    ),
)
