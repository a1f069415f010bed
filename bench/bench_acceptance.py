"""What verifying drafts costs, beside whoever else is importable, and beside reading the rows that decide.

    python -m tools.environment adapters.angelslim -m bench.bench_acceptance tree
    python -m tools.environment adapters.transformers -m bench.bench_acceptance chain
    python -m tools.environment adapters.vllm -m bench.bench_acceptance chain

One thread, contestants in turn on the same inputs, medians of the process's own time, and ratios to the fast path. The
decisions are checked equal first, with the coins given. Then everyone draws coins of its own.

tree: one tree of 60 drafts and its root, depth 7 and ten wide, float32 logits at temperature 1. AngelSlim is handed the
logits gathered by leaf, as its `evaluate_posterior` takes them; gathering them is not counted.
chain: 64 chains of K = 5 drafts, about two of which are accepted; from target and draft logits (transformers), from
target logits and draft probabilities (vLLM, whose bonus tokens are handed in and not counted), and from probabilities
beside `reading`: the sum, in torch, of the rows that the frontiers are drawn from, each read once.
`normalising` is what no exact verification from logits can do without: the exponentials of each row up to the
rejection, and their sum.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from oracle.fast.acceptance import Coins, Decisions, Drafts, verify_greedy, verify_random, verify_sampled
from oracle.types import Coins as GivenCoins
from oracle.types import Decision, VerifyCase

Call = Callable[[int], object]
"""A contestant; the number of the round is a seed."""
DEPTH, WIDTH, NODES = 7, 10, 60
BATCH, DRAFTED = 64, 5
NOISE = 0.75
"""Of draft logits beside the target's, so that about two of five drafts are accepted."""


def in_turn(contestants: dict[str, Call], rounds: int, calls: int = 1) -> dict[str, list[float]]:
    """Seconds of the process that a call takes, in each round of each contestant: the mean of some calls in a row."""
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    for i in range(-2, rounds):
        for name, call in contestants.items():
            start = time.process_time()
            for k in range(calls):
                call((i + 2) * calls + k)
            if i >= 0:
                taken[name].append((time.process_time() - start) / calls)
    return taken


def told(title: str, taken: dict[str, list[float]], first: str) -> dict[str, Any]:
    """A table of medians, spreads and ratios to the first."""
    medians = {name: statistics.median(seconds) for name, seconds in taken.items()}
    print(f"\n{title}")
    rows = {}
    for name, seconds in taken.items():
        low, high = (float(x) for x in np.quantile(seconds, (0.25, 0.75)))
        ratio = medians[name] / medians[first]
        print(f"  {name:34s} {medians[name] * 1e3:9.3f} ms  [{low * 1e3:8.3f} … {high * 1e3:8.3f}]  {ratio:7.2f}")
        rows[name] = {"median": medians[name], "quartiles": [low, high], "ratio": ratio}
    return {"title": title, "contestants": rows}


def tree_case(vocabulary: int, seed: int) -> tuple[list[int], list[int], Tensor]:
    """Parents and tokens of the best `NODES` nodes of a grown tree; target logits [61, V] that like some of them."""
    rng = np.random.default_rng(seed)
    grown: list[tuple[float, int, int]] = [(1.0, -1, 0)]  # confidence, parent, depth
    frontier = [0]
    for depth in range(1, DEPTH + 1):
        made = []
        for node in frontier:
            for share in np.sort(rng.dirichlet(np.full(WIDTH, 0.4)))[::-1] * 0.9:
                made.append(len(grown))
                grown.append((grown[node][0] * float(share), node, depth))
        frontier = sorted(made, key=lambda n: -grown[n][0])[:WIDTH]
    best = sorted(sorted(range(1, len(grown)), key=lambda n: (-grown[n][0], n))[:NODES])
    place = {0: -1, **{node: i for i, node in enumerate(best)}}
    parent = [place[grown[node][1]] for node in best]
    tokens = np.zeros(NODES, dtype=np.int64)
    logits = rng.normal(size=(NODES + 1, vocabulary)) * 2
    for row in range(NODES + 1):
        below = [i for i, up in enumerate(parent) if up == row - 1]
        tokens[below] = rng.choice(vocabulary, len(below), replace=False)
        total = np.log(np.exp(logits[row]).sum())
        for i in below:  # the target follows the drafter's confidence, less some
            share = grown[best[i]][0] / grown[best[i] if parent[i] < 0 else best[parent[i]]][0]
            logits[row, tokens[i]] = total + np.log(2 * max(0.6 if parent[i] < 0 else share, 1e-4))
    return parent, tokens.tolist(), torch.tensor(logits, dtype=torch.float32)


def tree(vocabulary: int, rounds: int) -> list[dict[str, Any]]:
    """Greedy and sampled, one tree at a time."""
    cases = [tree_case(vocabulary, seed) for seed in range(8)]
    drafts = [Drafts(torch.tensor([tokens]), torch.tensor([parent])) for parent, tokens, _ in cases]
    rows = [logits.unsqueeze(0) for _, _, logits in cases]

    def greedy(i: int) -> Decisions:
        return verify_greedy(drafts[i % 8], rows[i % 8])

    def sampled(i: int, **more: Any) -> Decisions:
        return verify_random(drafts[i % 8], i, rows[i % 8], target_logits=True, **more)

    greedily: dict[str, Call] = {"fast": greedy, "fast, vectorised": lambda i: _all_rows(drafts[i % 8], rows[i % 8])}
    randomly: dict[str, Call] = {"fast": sampled, "fast, not validated": lambda i: sampled(i, validate=False)}
    if importlib.util.find_spec("angelslim") is not None:
        both = _angelslim(cases, drafts, rows)
        greedily["angelslim"], randomly["angelslim"] = both
    accepted = [int(greedy(i).accepted) for i in range(8)], [int(sampled(i).accepted) for i in range(400)]
    print(f"accepted: greedy {np.mean(accepted[0]):.2f}, sampled {np.mean(accepted[1]):.2f}")
    laws = [torch.softmax(logits, -1) for logits in rows]
    by_law: dict[str, Call] = {
        "fast, from probabilities": lambda i: verify_random(drafts[i % 8], i, laws[i % 8]),
        "… not validated": lambda i: verify_random(drafts[i % 8], i, laws[i % 8], validate=False),
    }
    return [
        told(f"tree of {NODES + 1} nodes, V = {vocabulary}, greedy", in_turn(greedily, rounds, 8), "fast"),
        told("the same, sampled, from logits at T = 1", in_turn({**randomly, **by_law}, rounds, 8), "fast"),
    ]


def _all_rows(drafts: Drafts, rows: Tensor) -> Decisions:
    return verify_greedy(drafts, rows, vectorised=True, validate=False)


def _angelslim(cases: list[Any], drafts: list[Drafts], rows: list[Tensor]) -> tuple[Call, Call]:
    """`evaluate_posterior` without a processor and at temperature 1, after its decisions were compared."""
    from adapters import leaf_posterior
    from adapters.angelslim_serving import _posterior

    posterior = _posterior()
    processor = posterior.processor()
    given: dict[bool, list[tuple[Any, ...]]] = {}
    for sampled in (False, True):
        given[sampled] = []
        for parent, tokens, logits in cases:
            leaves = leaf_posterior.leaf_table(parent, sampled)
            candidates = np.array([0, *tokens, -1])[leaves]
            given[sampled].append((logits[torch.from_numpy(leaves)], torch.from_numpy(candidates), leaves))
    rng = np.random.default_rng(0)
    for k in range(16):
        parent, tokens, logits = cases[k % 8]
        case = VerifyCase(np.array(parent), np.array(tokens), torch.softmax(logits.double(), -1).numpy(), "point")
        coins = GivenCoins(rng.random(NODES), float(rng.random()))
        spent = Coins(torch.tensor(coins.accept[None]), torch.tensor([coins.frontier]))
        mine = verify_sampled(drafts[k % 8], spent, rows[k % 8], target_logits=True)
        _same(leaf_posterior.verify_sampled(posterior, [case], [coins])[0], mine, "angelslim")
        _same(
            leaf_posterior.verify_greedy(posterior, [case])[0], verify_greedy(drafts[k % 8], rows[k % 8]), "angelslim"
        )

    def greedy(i: int) -> object:
        return posterior.call(given[False][i % 8][0], given[False][i % 8][1], None)

    def random(i: int) -> object:
        return posterior.call(given[True][i % 8][0], given[True][i % 8][1], processor)

    return greedy, random


def _same(theirs: Decision, ours: Decisions, name: str) -> None:
    mine = Decision(tuple(ours.path[0, : int(ours.accepted[0])].tolist()), int(ours.frontier[0]))
    if mine != theirs:
        raise SystemExit(f"{name} decides {theirs}, the fast path {mine}")


def chain(vocabulary: int, rounds: int) -> list[dict[str, Any]]:
    """From logits, from logits and probabilities, and from probabilities."""
    generator = torch.Generator().manual_seed(0)
    target = torch.randn(BATCH, DRAFTED + 1, vocabulary, generator=generator) * 2
    draft = target[:, :DRAFTED] + torch.randn(BATCH, DRAFTED, vocabulary, generator=generator) * NOISE
    p, q = torch.softmax(target, -1), torch.softmax(draft, -1)
    token = torch.multinomial(q.view(-1, vocabulary), 1, generator=generator).view(BATCH, DRAFTED)
    drafts = Drafts(token)
    accepted = torch.stack([verify_random(drafts, i, p, q, "iid").accepted for i in range(8)]).double().mean()
    print(f"accepted: {float(accepted):.2f} of {DRAFTED}")

    def logits(i: int, **more: Any) -> Decisions:
        return verify_random(drafts, i, target, draft, "iid", target_logits=True, draft_logits=True, **more)

    def mixed(i: int, validate: bool) -> Decisions:
        return verify_random(drafts, i, target, q, "iid", target_logits=True, validate=validate)

    def probabilities(i: int, validate: bool) -> Decisions:
        return verify_random(drafts, i, p, q, "iid", validate=validate)

    def reading(i: int) -> float:
        stops = counts[i % len(counts)]
        total = 0.0
        for b, stop in enumerate(stops):
            total += float(p[b, stop].sum()) + (float(q[b, stop].sum()) if stop < DRAFTED else 0.0)
        return total

    buffer = torch.empty(vocabulary)

    def normalising(i: int, of: tuple[Tensor, ...]) -> float:
        total = 0.0
        for b, stop in enumerate(counts[i % len(counts)]):
            for rows in of:
                for r in range(min(stop + 1, rows.shape[1])):
                    total += float(torch.exp(rows[b, r], out=buffer).sum())
        return total

    counts = [probabilities(i, False).accepted.tolist() for i in range(rounds + 2)]
    size = f"B = {BATCH}, K = {DRAFTED}, V = {vocabulary}"
    from_logits: dict[str, Call] = {
        "fast": logits,
        "fast, vectorised": lambda i: logits(i, vectorised=True),
        "normalising p and q": lambda i: normalising(i, (target, draft)),
    }
    if importlib.util.find_spec("transformers") is not None and importlib.util.find_spec("vllm") is None:
        from_logits["transformers"] = _transformers(drafts, target, draft)
    found = [told(f"chains, {size}, from logits of both", in_turn(from_logits, rounds), "fast")]
    from_both: dict[str, Call] = {
        "fast, not validated": lambda i: mixed(i, False),
        "fast, draft rows validated": lambda i: mixed(i, True),
        "normalising p": lambda i: normalising(i, (target,)),
    }
    if importlib.util.find_spec("vllm") is not None:
        from_both["vllm"] = _vllm(drafts, target, q)
    found.append(told(f"chains, {size}, from target logits", in_turn(from_both, rounds), "fast, not validated"))
    from_laws: dict[str, Call] = {
        "reading": reading,
        "fast, not validated": lambda i: probabilities(i, False),
        "fast, rows validated": lambda i: probabilities(i, True),
    }
    found.append(told(f"chains, {size}, from probabilities", in_turn(from_laws, rounds), "reading"))
    return found


def _transformers(drafts: Drafts, target: Tensor, draft: Tensor) -> Call:
    """`_speculative_sampling`, a chain at a time."""
    from adapters import transformers

    function = transformers._implementation()[1]
    ids = torch.cat([torch.zeros(BATCH, 1, dtype=torch.int64), drafts.token], 1)

    def call(i: int) -> list[Any]:
        return [function(ids[b : b + 1], draft[b : b + 1], DRAFTED, target[b : b + 1].clone()) for b in range(len(ids))]

    rng = np.random.default_rng(0)
    for b in range(8):
        coins = GivenCoins(rng.random(DRAFTED), float(rng.random()))
        spent = Coins(torch.tensor(coins.accept[None]), torch.tensor([coins.frontier]))
        some = slice(b, b + 1)
        mine = verify_sampled(
            *(Drafts(drafts.token[some]), spent, target[some], draft[some], "iid"),
            target_logits=True,
            draft_logits=True,
        )
        with transformers._injected(torch, coins):
            tokens, count = function(ids[some], draft[some], DRAFTED, target[some].clone())
        _same(Decision(tuple(range(int(count))), int(tokens[0, -1])), mine, "transformers")
    return call


def _vllm(drafts: Drafts, target: Tensor, q: Tensor) -> Call:
    """The C++ kernels behind `rejection_sample`."""
    from adapters import vllm_engine

    engine = vllm_engine.engine("cpp")
    flat = drafts.token.reshape(-1).to(torch.int32)
    ends = torch.arange(1, BATCH + 1, dtype=torch.int32) * DRAFTED
    sampling = vllm_engine.sampling_metadata(torch, drafts.token.tolist(), {}, greedy=False)
    rows = target[:, :DRAFTED].reshape(BATCH * DRAFTED, -1).contiguous()
    laws, bonus = q.reshape(BATCH * DRAFTED, -1), target[:, DRAFTED].argmax(-1, keepdim=True).to(torch.int32)

    def call(i: int) -> Tensor:
        with torch.inference_mode():
            found: Tensor = engine.module.rejection_sample(
                flat, [DRAFTED] * BATCH, DRAFTED, ends, laws, rows.clone(), bonus, sampling
            )
        return found

    accept = np.random.default_rng(0).random((BATCH, DRAFTED))
    spent = Coins(torch.tensor(accept), torch.zeros(BATCH, dtype=torch.float64))
    mine = verify_sampled(drafts, spent, target, q, "iid", target_logits=True).accepted
    with vllm_engine.injected(engine.module, list(accept)):
        theirs = (call(0) >= 0).sum(1) - 1
    if not torch.equal(mine, theirs):
        raise SystemExit(f"vllm accepts {theirs.tolist()}, the fast path {mine.tolist()}")
    return call


def main() -> None:
    """Measure, print, and write JSON where asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("parts", nargs="+", choices=("tree", "chain"))
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    found = []
    for part in given.parts:
        found += {"tree": tree, "chain": chain}[part](given.vocabulary, given.rounds)
    if given.json:
        given.json.write_text(json.dumps({"threads": 1, "cores": os.cpu_count(), "tables": found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
