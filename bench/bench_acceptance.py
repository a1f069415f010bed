"""What verifying drafts costs, beside other packages, the oracle, dense torch, and the reading that decides.

Trees: 60 drafts and the root, ten wide and seven deep, float32 logits at temperature 1; one tree a call, several in
turn, so that rows come from memory. Chains: five drafts of each request, about two of them accepted. Answers are
compared with coins given, then whoever can draws its own. Calls validate, as on a CPU they do unless told otherwise.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from bench.grown_trees import NODES, TREES, Trees, trees
from bench.side_by_side import Contestant, Target, bound, peer, race
from oracle import acceptance as oracle
from oracle.fast.acceptance import Coins, Decisions, Drafts, verify_greedy, verify_random, verify_sampled
from oracle.types import Coins as GivenCoins
from oracle.types import Decision, VerifyCase

BATCH, DRAFTED, VOCABULARY = 64, 5, 32000
SEEDS = 8
"""Rounds of coins whose rows a bound goes through."""
NOISE = 0.75
"""Of draft logits beside the target's, so that about two of five drafts are accepted."""

Answer = dict[str, np.ndarray]


def same(ours: Answer, theirs: Answer) -> None:
    """All that they tell is what we tell; a few frontiers may be neighbours, where a coin meets the edge of a token."""
    for name, found in theirs.items():
        apart = np.abs(ours[name] - found)
        if name == "frontier":
            assert apart.max() <= 16 and (apart > 0).mean() <= 0.1, f"frontiers {ours[name]} and {found}"
        else:
            assert not apart.any(), f"{name} {ours[name]} and {found}"


Verify = Callable[[Drafts, Tensor, Coins], Decisions | Decision]


def told(given: Trees, verify: Verify) -> Answer:
    """Paths padded with −1, and frontiers."""
    path, frontier = np.full((TREES, given.drafts[0].token.shape[1]), -1), []
    for b, each in enumerate(zip(*given)):
        found = verify(*each)
        if isinstance(found, Decisions):
            found = Decision(tuple(found.path[0, : int(found.accepted)].tolist()), int(found.frontier))
        path[b, : len(found.path)] = found.path
        frontier.append(found.frontier)
    return {"path": path, "frontier": np.array(frontier)}


def arrays(given: Trees, sampled: bool) -> Answer:
    """For other packages; without coins they decide greedily."""
    parts = {
        "parent": [drafts.parent for drafts in given.drafts],
        "token": [drafts.token for drafts in given.drafts],
        "logits": given.logits,
    }
    if sampled:
        parts |= {"accept": [c.accept for c in given.coins], "frontier": [c.frontier for c in given.coins]}
    return {name: torch.cat(values).numpy() for name, values in parts.items()}


def ours(name: str, given: Trees, sampled: bool, **more: Any) -> Contestant:
    """Timed with coins of its own."""
    seeds = itertools.count()

    def run() -> None:
        for drafts, rows in zip(given.drafts, given.logits):
            if sampled:
                verify_random(drafts, next(seeds), rows, target_logits=True, **more)
            else:
                verify_greedy(drafts, rows, **more)

    def verify(drafts: Drafts, rows: Tensor, coins: Coins) -> Decisions:
        if sampled:
            return verify_sampled(drafts, coins, rows, target_logits=True, **more)
        return verify_greedy(drafts, rows, **more)

    return Contestant(name, run, lambda: told(given, verify), calls=1 if "vectorised" in more else None)


def by_oracle(given: Trees, sampled: bool) -> Contestant:
    """With laws in float64."""
    tokens, ups = ([one[0].numpy() for one in values] for values in zip(*[d[:2] for d in given.drafts]))
    laws = [rows[0].double().softmax(-1).numpy() for rows in given.logits]
    cases = iter(itertools.cycle([VerifyCase(*one, "point") for one in zip(ups, tokens, laws)]))

    def verify(_: Drafts, __: Tensor, coins: Coins) -> Decision:
        spent = GivenCoins(coins.accept[0].numpy(), float(coins.frontier))
        case = [next(cases)]
        return (oracle.verify_sampled(case, [spent]) if sampled else oracle.verify_greedy(case))[0]

    return Contestant("oracle", lambda: told(given, verify), calls=1)


def dense_greedy(drafts: Drafts, rows: Tensor, _: Coins) -> Decision:
    """As it is written first: the best token of every row."""
    best, token, parent = (values.tolist() for values in (rows[0].argmax(-1), drafts.token[0], drafts.parent[0]))
    path: list[int] = []
    node = -1
    while True:
        found = [i for i, up in enumerate(parent) if up == node and token[i] == best[node + 1]]
        if not found:
            return Decision(tuple(path), best[node + 1])
        node = found[0]
        path.append(node)


def dense_sampled(drafts: Drafts, rows: Tensor, coins: Coins) -> Decision:
    """As it is written first: the softmax of every row, and a row renormalised at every rejection."""
    laws, (accept, token, parent) = rows[0].softmax(-1), (v[0].tolist() for v in (coins.accept, *drafts[:2]))
    path: list[int] = []
    node = -1
    while True:
        law = laws[node + 1]
        for child in (i for i, up in enumerate(parent) if up == node):
            if accept[child] < float(law[token[child]]):
                path.append(child)
                break
            law[token[child]] = 0
            law /= law.sum()
        else:
            reached = law.cumsum(-1)
            return Decision(tuple(path), int((reached > coins.frontier * reached[-1]).int().argmax()))
        node = path[-1]


@pytest.mark.parametrize("vocabulary", [8000, VOCABULARY, 128000])
@pytest.mark.parametrize("sampled", [False, True], ids=["greedy", "sampled"])
def test_tree(benchmark: Any, sampled: bool, vocabulary: int) -> None:
    given = trees(vocabulary)
    main = vocabulary == VOCABULARY
    contestants = [
        ours("fast", given, sampled),
        ours("fast, as on a GPU", given, sampled, vectorised=True),
        Contestant("dense", lambda: told(given, dense_sampled if sampled else dense_greedy), calls=1),
    ]
    if sampled:
        contestants.append(summed("exponentials", visited_trees(given), True))
    if main:
        contestants.append(by_oracle(given, sampled))
    spec, function = "adapters.angelslim", "bench.peers.angelslim:tree_acceptance"
    contestants.append(peer(spec, function, arrays(given, sampled), calls=4 if sampled else 1))
    race(
        benchmark,
        f"{TREES} trees of {NODES + 1} nodes, V = {vocabulary}, {'sampled' if sampled else 'greedy'}",
        contestants,
        same=same,
        rounds=31,
        calls=32,
        memory=main,
        targets=[Target("angelslim", times=12 if sampled else 40)] if main else [],
        growth=(f"vocabulary, {'sampled' if sampled else 'greedy'}", vocabulary),
    )


@pytest.mark.parametrize("nodes", [15, 60, 240])
def test_tree_by_nodes(benchmark: Any, nodes: int) -> None:
    given = trees(8000, nodes)
    race(
        benchmark,
        f"{TREES} trees of {nodes + 1} nodes, V = 8000, sampled",
        [
            ours("fast", given, True),
            ours("fast, as on a GPU", given, True, vectorised=True),
            Contestant("dense", lambda: told(given, dense_sampled), calls=1),
        ],
        same=same,
        calls=32,
        growth=("nodes", nodes),
    )


def visited_trees(given: Trees) -> list[list[Tensor]]:
    """The rows that some rounds of coins lead to."""
    rounds = []
    for seed in range(SEEDS):
        visited = []
        for drafts, rows in zip(given.drafts, given.logits):
            found = verify_random(drafts, seed, rows, target_logits=True)
            visited += [rows[0, node + 1] for node in (-1, *found.path[0, : int(found.accepted)].tolist())]
        rounds.append(visited)
    return rounds


def summed(name: str, rounds: list[list[Tensor]], exponentials: bool) -> Contestant:
    """What cannot be left out: each row, or its exponentials, summed; another round's rows with each call."""
    turn, buffer = itertools.cycle(rounds), torch.empty_like(rounds[0][0])

    def run() -> None:
        for row in next(turn):
            (torch.exp(row, out=buffer) if exponentials else row).sum()

    return bound(f"{name} of the rows that decide, summed", run)


class Chains(NamedTuple):
    """Drafts [B, K] from `draft`, logits or laws, beside the same of the target, and coins."""

    drafts: Drafts
    target: Tensor
    draft: Tensor
    coins: Coins
    target_logits: bool
    draft_logits: bool

    def verify(self, **more: Any) -> Decisions:
        """With the coins given."""
        logits = {"target_logits": self.target_logits, "draft_logits": self.draft_logits}
        return verify_sampled(self.drafts, self.coins, self.target, self.draft, "iid", **logits, **more)

    def ours(self, name: str, **more: Any) -> Contestant:
        """Timed with coins of its own."""
        logits = {"target_logits": self.target_logits, "draft_logits": self.draft_logits}
        seeds = itertools.count()

        def run() -> None:
            verify_random(self.drafts, next(seeds), self.target, self.draft, "iid", **logits, **more)

        return Contestant(name, run, lambda: _numbers(self.verify(**more)), calls=1 if "vectorised" in more else None)

    def arrays(self) -> Answer:
        """For other packages."""
        given = {"target": self.target, "draft": self.draft, "token": self.drafts.token, **self.coins._asdict()}
        return {name: values.numpy() for name, values in given.items()}

    def dense(self) -> Contestant:
        """As it is written first: every row made a law."""

        def run() -> Answer:
            p = self.target.softmax(-1) if self.target_logits else self.target
            q = self.draft.softmax(-1) if self.draft_logits else self.draft
            token, every = self.drafts.token.unsqueeze(-1), torch.arange(len(p))
            passing = self.coins.accept * q.gather(-1, token).squeeze(-1) < p[:, :-1].gather(-1, token).squeeze(-1)
            accepted = passing.int().cumprod(-1).sum(-1)
            padded = torch.cat([q, torch.zeros_like(q[:, :1])], 1)
            left = (p[every, accepted] - padded[every, accepted]).clamp(min=0).cumsum(-1)
            frontier = (left > self.coins.frontier.unsqueeze(-1) * left[:, -1:]).int().argmax(-1)
            return {"accepted": accepted.numpy(), "frontier": frontier.numpy()}

        return Contestant("dense", run, calls=1)

    def by_oracle(self) -> Contestant:
        """With laws in float64."""
        p = self.target.double().softmax(-1) if self.target_logits else self.target.double()
        q = self.draft.double().softmax(-1) if self.draft_logits else self.draft.double()
        p, q = p / p.sum(-1, keepdim=True), q / q.sum(-1, keepdim=True)
        parent = np.arange(-1, DRAFTED - 1)
        rows = zip(self.drafts.token.numpy(), p.numpy(), torch.cat([q, q[:, :1]], 1).numpy())
        cases = [VerifyCase(parent, token, one, "iid", other) for token, one, other in rows]
        coins = [GivenCoins(a, float(f)) for a, f in zip(self.coins.accept.numpy(), self.coins.frontier)]

        def run() -> Answer:
            found = oracle.verify_sampled(cases, coins)
            return {
                "accepted": np.array([len(one.path) for one in found]),
                "frontier": np.array([one.frontier for one in found]),
            }

        return Contestant("oracle", run, calls=1)

    def visited(self) -> Iterator[list[tuple[Tensor, Tensor]]]:
        """In some rounds of coins, of each request: the rows of the target and of the draft up to where it stops."""
        logits = {"target_logits": self.target_logits, "draft_logits": self.draft_logits}
        for seed in range(SEEDS):
            found = verify_random(self.drafts, seed, self.target, self.draft, "iid", **logits)
            stops = enumerate(found.accepted.tolist())
            yield [(self.target[b, : stop + 1], self.draft[b, : stop + 1]) for b, stop in stops]


def _numbers(found: Decisions) -> Answer:
    return {"accepted": found.accepted.numpy(), "frontier": found.frontier.numpy()}


def chains(target_logits: bool, draft_logits: bool, batch: int = BATCH, vocabulary: int = VOCABULARY) -> Chains:
    generator = torch.Generator().manual_seed(0)
    target = torch.randn(batch, DRAFTED + 1, vocabulary, generator=generator) * 2
    draft = target[:, :DRAFTED] + torch.randn(batch, DRAFTED, vocabulary, generator=generator) * NOISE
    laws = draft.softmax(-1)
    token = torch.multinomial(laws.view(-1, vocabulary), 1, generator=generator).view(batch, DRAFTED)
    coins = Coins(
        torch.rand(batch, DRAFTED, generator=generator, dtype=torch.float64),
        torch.rand(batch, generator=generator, dtype=torch.float64),
    )
    rows = (target if target_logits else target.softmax(-1), draft if draft_logits else laws)
    return Chains(Drafts(token), *rows, coins, target_logits, draft_logits)


@pytest.mark.parametrize("batch", [4, 16, BATCH])
def test_chains_from_logits(benchmark: Any, batch: int) -> None:
    given = chains(True, True, batch)
    visited = [[row for rows in found for each in rows for row in each] for found in given.visited()]

    contestants = [
        given.ours("fast"),
        given.ours("fast, not validated", validate=False),
        given.ours("fast, as on a GPU", vectorised=True),
        given.dense(),
        summed("exponentials", visited, True),
    ]
    main = batch == BATCH
    if batch == 4:
        contestants.append(given.by_oracle())
    if main:
        for name in ("transformers", "flashspec"):
            at = f"bench.peers.{name}:chain_acceptance"
            contestants.append(peer(f"adapters.{name}", at, given.arrays(), calls=1))
    race(
        benchmark,
        f"{batch} chains of {DRAFTED}, V = {VOCABULARY}, from logits of both",
        contestants,
        same=same,
        rounds=31,
        calls=4,
        memory=main,
        targets=[Target("transformers", times=4)] if main else [],
        growth=("batch", batch),
    )


def test_chains_from_target_logits(benchmark: Any) -> None:
    given = chains(True, False)
    race(
        benchmark,
        f"{BATCH} chains of {DRAFTED}, V = {VOCABULARY}, from target logits and draft probabilities",
        [
            given.ours("fast"),
            given.dense(),
            peer("adapters.vllm", "bench.peers.vllm:chain_acceptance", given.arrays(), calls=1),
        ],
        same=same,
        rounds=31,
        calls=4,
        memory=True,
        targets=[Target("vllm", times=4)],
    )


@pytest.mark.parametrize("vocabulary", [8000, VOCABULARY, 128000])
def test_chains_from_probabilities(benchmark: Any, vocabulary: int) -> None:
    given = chains(False, False, BATCH if vocabulary <= VOCABULARY else BATCH // 4, vocabulary)
    # of each request the row of the target where it stops, and of the draft where a draft was rejected there
    needed = [
        [row for p, q in found for row in ([p[-1]] if len(p) > len(q) else [p[-1], q[-1]])] for found in given.visited()
    ]
    race(
        benchmark,
        f"{len(given.target)} chains of {DRAFTED}, V = {vocabulary}, from probabilities",
        [
            given.ours("fast"),
            given.ours("fast, not validated", validate=False),
            given.ours("fast, as on a GPU", vectorised=True),
            given.dense(),
            summed("entries", needed, False),
        ],
        same=same,
        rounds=31,
        calls=4,
        memory=vocabulary == VOCABULARY,
        targets=[Target("entries", within=4)] if vocabulary == VOCABULARY else [],
        growth=("vocabulary", vocabulary),
    )
