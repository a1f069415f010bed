"""Trees in torch: what is none is refused, where numbers are looked at, and structure always."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from oracle.errors import BadInput  # noqa: E402
from oracle.fast import growing, masks, trees  # noqa: E402
from oracle.fast import tree as fast  # noqa: E402

RIGHT = fast.Candidates(
    torch.tensor([[-1, -1, 0]]),
    torch.tensor([[1, 2, 3]]),
    torch.tensor([[0.5, 0.25, 0.5]]),
    torch.tensor([[-0.7, -1.4, -1.4]]),
    torch.tensor([[1, 1, 2]]),
)
META_IDS = torch.zeros(2, dtype=torch.int64, device="meta")


def _halves(frontier: growing.Frontier) -> torch.Tensor:
    return torch.full((*frontier.node.shape, 2), 0.5)


CHAIN = fast.Candidates(*map(torch.tensor, ([[-1, 0, 1]], [[1, 2, 3]], [[0.5] * 3], [[-0.7, -1.4, -2.1]], [[1, 2, 3]])))


@pytest.mark.parametrize(
    ("change", "field", "index"),
    [
        ({"parent": [[-1, 1, 0]]}, "candidates.parent", (0, 1)),
        ({"parent": [[-1, -2, 0]]}, "candidates.parent", (0, 1)),
        ({"depth": [[1, 1, 1]]}, "candidates.depth", (0, 2)),
        ({"token": [[1, -2, 3]]}, "candidates.token", (0, 1)),
        ({"token": [[1, 1, 3]]}, "candidates.token", (0, 1)),
        ({"token": [[2**62, 2**62, 3]]}, "candidates.token", (0, 1)),
        ({"confidence": [[0.5, math.nan, 0.5]]}, "candidates.confidence", (0, 1)),
        ({"confidence": [[0.75, 0.5, 0.5]]}, "candidates.confidence", (0, 0)),
        ({"log_value": [[-1.0, -2.0, -0.5]]}, "candidates.log_value", (0, 2)),
        ({"log_value": [[-1.0, math.nan, -1.5]]}, "candidates.log_value", (0, 1)),
        ({"length": [4]}, "candidates.length", (0,)),
        ({"deepest": 1}, "candidates.deepest", (0, 2)),
    ],
)
def test_what_is_no_tree_is_refused_where_it_is_looked_at(change: Any, field: str, index: tuple[int, ...]) -> None:
    new = {name: value if name == "deepest" else torch.tensor(value) for name, value in change.items()}
    wrong = RIGHT._replace(**new)
    for call in (fast.select_nodes, fast.keep_best):
        call(RIGHT, 2)
        with pytest.raises(BadInput) as told:
            call(wrong, 2)
        assert (told.value.field, told.value.index) == (field, index)
    with pytest.raises(BadInput):
        fast.flatten_tree(wrong, torch.tensor([[0, 1]]))


def test_trees_as_growth_leaves_them_are_held_to_the_same_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """The quick look at them lets nothing pass that asking for one rule after the other refuses."""
    rng = np.random.default_rng(6)
    laws = torch.tensor([0.5, 0.3, 0.2, 0.0])
    grown = growing.grow_tree(lambda f: laws.expand(*f.node.shape, -1), 2, 3, 3, batch=2)._replace(seen=())
    values = {
        "parent": (-2, -1, 0, 1, 3, 4, 14),
        "token": (-1, 0, 1, 2, 2**31, 2**40),
        "confidence": (-0.1, 0.0, 0.3, 0.5 + 1e-3, 1.0, 1.1, math.nan),
        "log_value": (0.1, 0.0, -1.0, -3.0, math.nan, -math.inf),
        "depth": (0, 1, 2, 3, 4),
    }

    def twice(one: torch.Tensor) -> torch.Tensor:
        """The second family as the third, too."""
        return torch.cat((one[:, :6], one[:, 3:6], one[:, 9:]), 1)

    again = grown._replace(**{name: twice(getattr(grown, name)) for name in values})
    rises = grown._replace(log_value=torch.where(torch.arange(grown.depth.shape[1]) == 0, 0.1, grown.log_value))

    def refused(candidates: fast.Candidates) -> object:
        try:
            fast.check_candidates(candidates)
        except BadInput as error:
            return error.field, error.index, error.rule
        return None

    assert refused(again)
    assert refused(rises)
    refusals = Counter()
    for _ in range(400):
        name = str(rng.choice(list(values)))
        wrong = getattr(grown, name).clone()
        for place in rng.integers(0, wrong.numel(), int(rng.integers(1, 3))):
            wrong.view(-1)[int(place)] = float(rng.choice(values[name]))
        changed = grown._replace(**{name: wrong}, deepest=int(rng.integers(2, 5)), layered=bool(rng.integers(0, 2)))
        found = refused(changed)
        with monkeypatch.context() as patch:
            patch.setattr(trees, "_plain", lambda *_: False)
            assert refused(changed) == found
        refusals[found is None] += 1
    assert min(refusals.values()) > 40


def test_what_was_looked_at_is_not_looked_at_again_until_it_is_another() -> None:
    grown = growing.grow_tree(lambda f: torch.full((*f.node.shape, 2), 0.5), 2, 2, 2)
    wrong = torch.ones_like(grown.depth)
    unseen = growing.grow_tree(lambda f: torch.full((*f.node.shape, 2), 0.5), 2, 2, 2, validate=False)
    assert not unseen.seen
    for candidates in (grown, fast.check_candidates(unseen)):
        fast.keep_best(candidates, 2)
        with pytest.raises(BadInput, match="one more than that of the parent"):
            fast.keep_best(candidates._replace(depth=wrong), 2)
        with pytest.raises(BadInput, match="no node is deeper than 1"):
            fast.keep_best(candidates._replace(deepest=1), 2)
    with pytest.raises(BadInput, match="drafter"):
        growing.grow_tree(lambda _: torch.tensor([[[0.0, math.nan]]]), 1, 1, 1, logits=True)
    with pytest.raises(BadInput, match="different tokens"):
        growing.grow_tree(lambda _: torch.tensor([[[0.5, 0.5]]]), 1, 2, 1, draft_to_target=torch.tensor([3, 3]))


def test_a_token_behind_a_length_is_nobodys_twin() -> None:
    fast.check_candidates(RIGHT._replace(length=torch.tensor([2]), token=torch.tensor([[1, 2, 1]])))


def test_structure_is_refused_whatever_is_looked_at() -> None:
    calls = [
        ("candidates.token", lambda: fast.select_nodes(RIGHT._replace(token=RIGHT.token.int()), 2, validate=False)),
        ("candidates.depth", lambda: fast.keep_best(RIGHT._replace(depth=RIGHT.depth[:, :2]), 2, validate=False)),
        ("candidates.log_value", lambda: fast.keep_best(RIGHT._replace(log_value=RIGHT.token), 2, validate=False)),
        ("budget", lambda: fast.select_nodes(RIGHT, -1, validate=False)),
        ("budget", lambda: fast.select_nodes(RIGHT, torch.tensor([1, 2]), validate=False)),
        ("budget", lambda: fast.select_nodes(RIGHT, torch.tensor([-1]))),
        ("base", lambda: fast.keep_best(RIGHT, 2, 2**63 - 2, validate=False)),
        ("selected", lambda: fast.flatten_tree(RIGHT, torch.tensor([0]), validate=False)),
        ("form", lambda: masks.tree_mask(RIGHT.parent, 0, "packed64", validate=False)),
        ("longest", lambda: masks.tree_mask(RIGHT.parent, torch.tensor([3]), validate=False, vectorised=True)),
        ("longest", lambda: masks.tree_mask(RIGHT.parent, torch.tensor([3]), longest=2)),
        ("widest", lambda: fast.keep_best(RIGHT, torch.tensor([3]), widest=2)),
        ("widest", lambda: fast.draft_tree(_halves, 2, 2, 2, torch.tensor([3]), widest=2)),
        ("deepest", lambda: fast.leaf_paths(RIGHT.parent, deepest=-1)),
        ("deepest", lambda: fast.leaf_paths(RIGHT.parent, deepest=1)),
        ("deepest", lambda: fast.leaf_paths(RIGHT.parent, deepest=1, vectorised=True)),
        ("dtype", lambda: masks.tree_mask(RIGHT.parent, 0, "additive", dtype=torch.int64)),
        ("draft_to_target", lambda: growing.grow_tree(_halves, 1, 1, 1, draft_to_target=META_IDS)),
        ("expand_width", lambda: growing.grow_tree(lambda _: torch.ones(1, 1, 1), 0, 1, 1)),
        ("drafter", lambda: growing.grow_tree(lambda _: torch.ones(1, 2, 1), 1, 1, 1, validate=False)),
        ("drafter", lambda: growing.grow_tree(lambda _: torch.ones(1, 1, 1, device="meta"), 1, 1, 1)),
        ("drafter", lambda: growing.grow_tree(lambda f: torch.full((1, 1, 2 + f.prefix.shape[2]), 0.25), 1, 1, 2)),
    ]
    for field, call in calls:
        with pytest.raises(BadInput) as told:
            call()
        assert told.value.field == field


@pytest.mark.parametrize("vectorised", [False, True])
def test_a_position_that_has_no_64_bits_is_named(vectorised: bool) -> None:
    two = RIGHT._replace(**{name: getattr(RIGHT, name).expand(2, -1) for name in RIGHT._fields[:5]})
    with pytest.raises(BadInput) as told:
        fast.keep_best(two, 2, torch.tensor([4, 2**63 - 1]), vectorised=vectorised)
    assert (told.value.field, told.value.index) == ("base", (1,))


@pytest.mark.parametrize("selected", [[[1]], [[0, 0]], [[0, 9]], [[-1]]])
def test_selections_that_are_none_are_refused(selected: list[list[int]]) -> None:
    with pytest.raises(BadInput) as told:
        fast.flatten_tree(CHAIN, torch.tensor(selected))
    assert told.value.field == "selected"


def test_rows_that_are_no_laws_are_refused_where_they_are_looked_at() -> None:
    for row in ([0.5, -0.1], [0.5, math.nan], [0.75, 0.5]):
        rows = torch.tensor([[row]])
        with pytest.raises(BadInput, match="sum to at most one"):
            growing.grow_tree(lambda _, rows=rows: rows, 1, 1, 1)  # type: ignore[misc]
        growing.grow_tree(lambda _, rows=rows: rows, 1, 1, 1, validate=False)  # type: ignore[misc]
