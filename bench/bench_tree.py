"""What lies between the drafter and the verifier: the best nodes, parents, mask, positions, sibling links, leaf table.

    python -m tools.environment adapters.angelslim -m bench.bench_tree [--trees 1 64] [--rounds 30] [--json FILE]

Trees of `--width` k and `--depth` as EAGLE-2 grows them (k + (depth − 1)·k² candidates), of which `--budget` are kept.
One thread, contestants in turn on the same candidates, medians of the process's own time, and ratios to the fast path.
The results are checked equal first. `fast` looks at no number, as no peer does; `fast, validated` does what a call
does by default. `torch` is the way without the host, on a CPU. AngelSlim takes part where it is installed: its
`_finalize_results`, tree by tree, as it has no batch; it makes no sibling links.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from oracle import tree as oracle
from oracle.fast.tree import Candidates, FlatTrees, Frontier, grow_tree, keep_best
from oracle.types import CandidateTree, FlattenCase, SelectionCase

VOCABULARY = 1000
Contestant = Callable[[], object]


def grown(trees: int, width: int, depth: int) -> Candidates:
    """Trees from random rows."""
    generator = torch.Generator().manual_seed(0)

    def drafter(frontier: Frontier) -> Tensor:
        return torch.softmax(2 * torch.randn(*frontier.node.shape, VOCABULARY, generator=generator), -1)

    return grow_tree(drafter, width, width, depth, trees)


def by_oracle(given: Candidates, budget: int, base: int) -> Contestant:
    """Tree by tree."""
    trees = [CandidateTree(*(one[b].numpy() for one in given[:5])) for b in range(len(given.parent))]

    def run() -> object:
        return oracle.flatten_tree(
            [FlattenCase(tree, oracle.select_nodes(SelectionCase(tree, budget)), base) for tree in trees]
        )

    return run


def by_angelslim(given: Candidates, width: int, budget: int) -> Contestant:
    """Its lists of scores, tokens and parents, a tensor a layer, are made before the clock runs."""
    from adapters.angelslim_engine import angelslim

    drafter = angelslim().drafter.Llama3Eagle3Drafter
    model = drafter.__new__(drafter)
    vars(model).update(total_tokens=budget, top_k=width)
    sizes = [width] + [width * width] * ((given.parent.shape[1] - width) // (width * width))
    trees = []
    for b in range(len(given.parent)):
        scores, tokens = (list(one[b].split(sizes)) for one in (given.log_value, given.token))
        parents = [one[:: min(width, len(one))] + 1 for one in given.parent[b].split(sizes)]
        trees.append((scores, tokens, torch.zeros(1, dtype=torch.int64), parents))

    def run() -> object:
        return [model._finalize_results(*tree, None) for tree in trees]

    return run


def contestants(given: Candidates, width: int, budget: int, base: int) -> dict[str, Contestant]:
    """Those that can be had here."""
    found: dict[str, Contestant] = {
        "fast": lambda: keep_best(given, budget, base, validate=False),
        "fast, validated": lambda: keep_best(given, budget, base),
        "torch": lambda: keep_best(given, budget, base, validate=False, vectorised=True),
        "oracle": by_oracle(given, budget, base),
    }
    try:
        found["angelslim"] = by_angelslim(given, width, budget)
    except Exception as error:
        if type(error).__name__ != "AdapterError":
            raise
    return found


def compared(found: dict[str, Contestant], base: int) -> None:
    """`ValueError` unless parents, tokens, masks, positions, links and paths agree."""
    made = found["oracle"]()
    for name, run in found.items():
        answer = run()
        for b, right in enumerate(made):  # type: ignore[attr-defined]
            if name == "angelslim":
                tokens, paths, mask, position = (one.numpy() for one in answer[b])  # type: ignore[index]
                pairs = {
                    "token": (tokens[0, 1:], right.token),
                    "paths": (np.where(paths[:, 1:] > 0, paths[:, 1:] - 1, -1), right.paths),
                    "visible": (mask[0, 0, 1:, 1:] > 0, right.visible),
                    "position": (position + base, right.position),
                }
            elif isinstance(answer, FlatTrees):
                one = {key: value[b].numpy() for key, value in answer._asdict().items()}
                one["paths"] = one["paths"][: one["leaves"], : right.paths.shape[1]]
                pairs = {key: (one[key], getattr(right, key)) for key in vars(right)}
            else:
                continue
            for key, (ours, wanted) in pairs.items():
                if not np.array_equal(ours, wanted):
                    raise ValueError(f"{name}: {key} of tree {b} differs: {ours} where the oracle has {wanted}")


def timed(found: dict[str, Contestant], rounds: int) -> dict[str, dict[str, float]]:
    """Seconds of the process and of the wall, medians over rounds in which each runs in turn."""
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in found}
    for _ in range(rounds):
        for name, run in found.items():
            if name == "oracle" and len(spent[name]) >= 3:
                continue
            own, wall = time.process_time(), time.perf_counter()
            run()
            spent[name].append((time.process_time() - own, time.perf_counter() - wall))
    return {
        name: {
            "process": statistics.median(own for own, _ in times),
            "least": min(own for own, _ in times),
            "wall": statistics.median(wall for _, wall in times),
        }
        for name, times in spent.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trees", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--width", type=int, default=10)
    parser.add_argument("--depth", type=int, default=7)
    parser.add_argument("--budget", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    table: dict[str, dict[str, dict[str, float]]] = {}
    for trees in chosen.trees:
        given = grown(trees, chosen.width, chosen.depth)
        found = contestants(given, chosen.width, chosen.budget, base=100)
        compared(found, base=100)
        made = table[str(trees)] = timed(found, chosen.rounds if trees > 1 else 20 * chosen.rounds)
        print(f"\n{trees} trees, {given.parent.shape[1]} candidates, {chosen.budget} kept")
        for name, times in made.items():
            ratio, least = (times[key] / made["fast"][key] for key in ("process", "least"))
            print(
                f"  {name:16} {1e3 * times['process']:9.3f} ms  {ratio:6.1f}×   least {1e3 * times['least']:9.3f} ms "
                f" {least:6.1f}×   wall {1e3 * times['wall']:9.3f} ms"
            )
    if chosen.json:
        chosen.json.write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
