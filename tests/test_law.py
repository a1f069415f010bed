"""Losslessness as an equality of rationals, and the second road to every law."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.acceptance import models
from conformance.roads import acceptance as road
from conformance.roads import schemes
from oracle import law
from oracle.errors import BadInput
from tests.tables import tables

SHAPES = {
    "no drafts": [],
    "one draft": [-1],
    "chain of three": [-1, 0, 1],
    "two siblings": [-1, -1],
    "fork below the root": [-1, -1, 0, 0],
    "three siblings, one deeper": [-1, -1, -1, 1],
}

ONE_HOT = {(): (Fraction(1), Fraction(0))}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("proposal", ["point", "iid", "without_replacement"])
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_what_is_published_has_the_target_law(shape: str, proposal: str, data: st.DataObject) -> None:
    parent = SHAPES[shape]
    siblings = max((parent.count(p) for p in parent), default=0)
    # siblings that differ need as many tokens with draft mass
    crowded = proposal != "iid" and siblings > 1
    vocabulary = data.draw(st.integers(3 if crowded else 2, 3))
    target, draft = data.draw(tables(vocabulary, 3)), data.draw(tables(vocabulary, 3, zeros=not crowded))
    emitted = law.emitted_law(target, draft, parent, proposal)
    assert sum(emitted.values()) == 1
    assert law.completed(emitted, target, 3) == road.sequence_law(target, 3) == law.target_law(target, 3)


WIDE = [-1, -1, -1, 0, 0, 0, 4, 4, 4]
"""Three siblings on each of three layers."""


@pytest.mark.parametrize("scheme", ["per_parent", "sample_and_match"])
@pytest.mark.parametrize("proposal", ["point", "iid", "without_replacement"])
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_every_scheme_publishes_the_target_law(scheme: str, proposal: str, data: st.DataObject) -> None:
    target, draft = data.draw(tables(3, 3)), data.draw(tables(3, 3, zeros=proposal == "iid"))
    for parent in ([-1, -1, -1, 1], [-1, -1, 0, 2]):
        emitted = law.emitted_law(target, draft, parent, proposal, scheme)
        assert law.completed(emitted, target, 3) == road.sequence_law(target, 3)


@pytest.mark.parametrize("scheme", ["per_node", "per_parent", "sample_and_match"])
@pytest.mark.parametrize("proposal", ["point", "iid", "without_replacement"])
def test_three_siblings_on_three_layers(scheme: str, proposal: str) -> None:
    """Independent siblings, all drawn before they are matched, stop at one on the last layer: 3⁹ drafts are many."""
    parent = WIDE if proposal != "iid" or scheme == "per_node" else WIDE[:7]
    model = models.model(models.LAW_SEED, proposal, 3, parent)
    assert law.is_lossless(model.target, model.draft, parent, proposal, 4, scheme)


@pytest.mark.parametrize("proposal", ["point", "iid"])
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_block_verification_publishes_the_target_law_and_accepts_no_less(proposal: str, data: st.DataObject) -> None:
    target, draft = data.draw(tables(2, 3)), data.draw(tables(2, 3))
    chain = [-1, 0, 1]
    emitted = law.emitted_law(target, draft, chain, proposal, "block")
    assert law.completed(emitted, target, 4 - 1) == road.sequence_law(target, 3)
    blocks, nodes = (law.accepted_depth_law(target, draft, chain, proposal, scheme) for scheme in ("block", "per_node"))
    for depth in range(1, 4):
        assert sum(blocks[depth:]) >= sum(nodes[depth:]), "at every depth the longest prefix wins"


@pytest.mark.parametrize("scheme", ["per_node", "per_parent", "sample_and_match", "block"])
@pytest.mark.parametrize("proposal", ["point", "iid", "without_replacement"])
def test_accepted_depths_by_a_second_road(scheme: str, proposal: str) -> None:
    """Each tree that may be drafted, weighed by its probability, times the formulas of its nodes."""
    parent = (-1, 0, 1) if scheme == "block" else (-1, -1, 0)
    model = models.model(5, proposal, 3, parent)
    depths = [Fraction(0)] * (model.depth + 1)
    for tokens, weight in model.drafted():
        case = model.case(tokens)
        if scheme == "block":
            reached = [Fraction(1), *schemes.block_prefixes(case), Fraction(0)]
            for depth in range(len(depths)):
                depths[depth] += weight * (reached[depth] - reached[depth + 1])
            continue
        a, b, c = (schemes.accepted_when_tested(case, node, scheme) for node in range(3))
        depths[2] += weight * a * c
        depths[1] += weight * (a * (1 - c) + (1 - a) * b)
        depths[0] += weight * (1 - a) * (1 - b)
    found = law.accepted_depth_law(model.target, model.draft, parent, proposal, scheme)
    assert [float(d) for d in found] == pytest.approx([float(d) for d in depths], abs=1e-12)


@pytest.mark.parametrize("arrange", [law.by_value, law.best_of(1)], ids=["sorted", "pruned"])
@pytest.mark.parametrize("proposal", ["point", "iid", "without_replacement"])
def test_sorted_and_pruned_siblings_are_lossy_unless_they_are_points(proposal: str, arrange: law.Arrange) -> None:
    model = models.fork_model(proposal)
    lossless = law.is_lossless(model.target, model.draft, model.parent, proposal, 2, arrange=arrange)
    assert lossless == (proposal == "point")
    emitted = law.completed(
        law.emitted_law(model.target, model.draft, model.parent, proposal, arrange=arrange), model.target, 1
    )
    target = law.target_law(model.target, 1)
    lost = sum(abs(emitted.get(k, Fraction(0)) - target.get(k, Fraction(0))) for k in target) / 2
    assert lost == 0 if proposal == "point" else lost > Fraction(1, 10)


def test_unknown_schemes_and_forked_blocks_are_refused() -> None:
    model = models.fork_model("point")
    with pytest.raises(BadInput, match="a coin scheme is one of"):
        law.emitted_law(model.target, model.draft, model.parent, "point", "per_layer")
    with pytest.raises(BadInput, match="block verification decides chains"):
        law.emitted_law(model.target, model.draft, model.parent, "point", "block")
    with pytest.raises(BadInput, match=r"parent\[0\] = 3"):
        law.accepted_depth_law(model.target, model.draft, [3], "point")


@pytest.mark.parametrize("scheme", ["per_parent", "sample_and_match"])
def test_when_siblings_are_drawn(scheme: str) -> None:
    """The first child is always accepted: per_node never looks at the second, which has no token left to take."""
    one = {**ONE_HOT, (0,): ONE_HOT[()]}
    assert law.emitted_law(one, ONE_HOT, [-1, -1], "point", "per_node") == {(0, 0): 1}
    with pytest.raises(BadInput, match=r"parent\[1\]: point proposals stay within the support"):
        law.emitted_law(one, ONE_HOT, [-1, -1], "point", scheme)


@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_five_drafts_over_four_tokens(data: st.DataObject) -> None:
    target, draft = data.draw(tables(4, 1)), data.draw(tables(4, 1))
    whole = {k: target[k[-1:]] for k in _prefixes(4, 5)}, {k: draft[k[-1:]] for k in _prefixes(4, 5)}
    assert law.is_lossless(*whole, [-1, 0, 1, 2, 3], "iid", 2)


@settings(max_examples=40, deadline=None)
@given(p=tables(4, 0), q=tables(4, 0))
def test_the_identity_behind_losslessness(p: law.Table, q: law.Table) -> None:
    """min(p, q) + (1 − Σ min) · residual = p, and the first draft is accepted Σ min(p, q) of the time."""
    target = {**p, **{(v,): p[()] for v in range(4)}}
    assert road.first_token_law(p[()], q[()]) == list(p[()])
    depths = law.accepted_depth_law(target, {**q, **{(v,): q[()] for v in range(4)}}, [-1], "iid")
    assert depths[1] == road.acceptance(p[()], q[()])


def test_the_worked_example_of_two_siblings() -> None:
    """p = (.5, .3, .2), children 0 and 1: accepted .5, then .6 of the rest, else token 2."""
    p = (Fraction(5, 10), Fraction(3, 10), Fraction(2, 10))
    target = {(): p, (0,): p, (1,): p}
    emitted = law.emitted_law(target, {(): (Fraction(1, 2), Fraction(3, 10), Fraction(1, 5))}, [-1, -1], "point")
    first = [sum(w for tokens, w in emitted.items() if tokens[0] == v) for v in range(3)]
    assert first == list(p)
    assert emitted[(2,)] == Fraction(1, 5)


def test_a_biased_walk_is_noticed() -> None:
    """Feeding top-k children as if they were sampled is not lossless, and the equality says so."""
    target = {(): (Fraction(1, 5), Fraction(4, 5)), (0,): (Fraction(1, 2),) * 2, (1,): (Fraction(1, 2),) * 2}
    honest = law.emitted_law(target, {(): (Fraction(3, 5), Fraction(2, 5))}, [-1], "iid")
    # the drafter claims q = (.6, .4) but always proposes token 0
    claimed = {(): (Fraction(1), Fraction(0))}
    lying = {tokens: weight for tokens, weight in law.emitted_law(target, claimed, [-1], "iid").items()}
    assert law.completed(honest, target, 1) == law.target_law(target, 1)
    assert law.completed(lying, target, 1) == law.target_law(target, 1), "one-hot q is what it really drew from"
    assert honest != lying


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"proposal": "typical"}, "a proposal is one of"),
        ({"parent": [0]}, "parent[0]"),
        ({"target": {(): (Fraction(1, 2), Fraction(1, 3))}}, "sum to exactly one"),
        ({"target": {}}, "a row for each prefix"),
        ({"draft": {(): (0.5, 0.5)}}, "Fractions"),
        ({"target": {(): None}}, "target[()] = 'NoneType': a table row holds"),
        ({"draft": {(): None}}, "draft[()] = 'NoneType': a table row holds"),
        ({"target": None}, "a row for each prefix"),
        ({"draft": {(): (Fraction(1),)}}, "draft[()] = 1: target and draft rows have one width, here 2"),
        ({"draft": {(): (Fraction(0),) * 2 + (Fraction(1),)}}, "draft[()] = 3: target and draft rows have one width"),
        ({"draft": {(): (Fraction(1),)}, "proposal": "point"}, "rows have one width"),
        ({"parent": [-1.5]}, "parent = 'float64': holds integers"),
        ({"parent": [[-1], [0, 1]]}, "parent = 'list': is an array"),
        ({"proposal": ["iid"]}, "a proposal is one of"),
        ({"scheme": []}, "a coin scheme is one of"),
        ({"parent": [-1, -1], "proposal": "without_replacement", "draft": ONE_HOT}, "within the support"),
        ({"parent": [-1, -1], "proposal": "point", "draft": ONE_HOT}, "within the support"),
    ],
)
def test_bad_tables_are_refused(change: dict[str, object], words: str) -> None:
    half = Fraction(1, 2)
    arguments: dict[str, object] = {
        "target": {(): (half, half), (0,): (half, half), (1,): (half, half)},
        "draft": {(): (half, half)},
        "parent": [-1],
        "proposal": "iid",
    }
    arguments |= change
    with pytest.raises(BadInput) as caught:
        law.emitted_law(**arguments)  # type: ignore[arg-type]
    assert words in str(caught.value)


def _prefixes(vocabulary: int, depth: int) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = [()]
    layer: list[tuple[int, ...]] = [()]
    for _ in range(depth):
        layer = [(*prefix, v) for prefix in layer for v in range(vocabulary)]
        found += layer
    return found
