"""What it costs to plan the rows of packed documents, to collate them, and to say who sees whom.

    python -m tools.environment adapters.speculators -m bench.bench_rows [--rounds 200] [--json FILE]

Eight documents whose rows fill S = 4096. One thread, contestants in turn on the same inputs, medians of the process's
own time, and ratios to the fast path; results are checked equal first. speculators takes part where it is installed:
its collator with `shift_batch`, at width 1 for the planning alone, and its mask with torch's `create_block_mask`.
`copy` is the bound of a collation: features and states copied once, as they are, from one buffer to another.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from oracle.fast.collation import Document, PackedRows, pack_rows, row_buffers
from oracle.fast.rows import TokenBatch, hard_rows, rollout_rows, soft_rows

ROWS = 4096
LENGTHS = (700, 300, 512, 600, 400, 900, 350, 342)
Contestant = Callable[[], Any]


def documents(width: int, dtype: torch.dtype) -> list[Document]:
    """Features three times as wide as states, as of three layers."""
    made = torch.Generator().manual_seed(0)
    return [
        Document(
            torch.randint(0, 32000, (n,), generator=made),
            torch.randn(n, 3 * width, generator=made).to(dtype),
            torch.randn(n, width, generator=made).to(dtype),
            torch.rand(n, generator=made) < 0.7,
        )
        for n in LENGTHS
    ]


def batch(given: list[Document]) -> TokenBatch:
    """The documents one behind another; flags of the advanced token."""
    lengths = torch.tensor(LENGTHS)
    tokens = torch.cat([document.tokens for document in given])[None]
    segment = torch.arange(len(LENGTHS)).repeat_interleave(lengths)[None]
    position = torch.cat([torch.arange(n) for n in LENGTHS])[None]
    mask = torch.cat([torch.cat([document.mask[1:], torch.zeros(1, dtype=torch.bool)]) for document in given])[None]
    return TokenBatch(tokens, torch.ones_like(mask), segment, position, mask)


def dense(given: TokenBatch) -> tuple[Tensor, Tensor]:
    """The plain torch version: sources, and a square mask."""
    segment = given.segment[0]
    source = (segment[1:] == segment[:-1]).nonzero()[:, 0]
    row = segment[source]
    return source, (row[:, None] == row[None]) & torch.ones(len(row), len(row), dtype=torch.bool).tril()


def speculators(given: list[Document], width: int, dtype: torch.dtype) -> Contestant | None:
    """Its collator on the same documents; None where it is not installed."""
    try:
        data = importlib.import_module("speculators.train.data")
        shift = importlib.import_module("speculators.models.eagle3.data").shift_batch
    except ImportError:
        return None
    samples = [
        {
            "hidden_states": document.features,
            "input_ids": document.tokens,
            "verifier_last_hidden_states": document.states,
            "loss_mask": document.mask,
            "lengths": torch.tensor([len(document.tokens)]),
            "position_ids": torch.arange(len(document.tokens)),
        }
        for document in given
    ]
    collate = data.CollateFn(ROWS, width, 3, dtype, preprocess=shift)
    return lambda: collate(samples)


def compared(found: PackedRows, peer: dict[str, Tensor]) -> None:
    """`ValueError` unless the collator made the same rows; it counts positions from 1."""
    pairs = {
        "hidden_states": found.feature,
        "verifier_last_hidden_states": found.target,
        "input_ids": found.token,
        "loss_mask": found.supervise,
        "position_ids": found.position + 1,
        "document_ids": found.document,
    }
    for name, values in pairs.items():
        if not torch.equal(peer[name][0], values):
            raise ValueError(f"{name} differs")


def timed(runs: dict[str, Contestant], rounds: int) -> dict[str, list[float]]:
    """Seconds of the process's own time, the contestants in turn."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.process_time()
            run()
            found[name].append(time.process_time() - start)
    return found


def planning() -> dict[str, Contestant]:
    """Which rows there are, and what each of them is."""
    given = documents(1, torch.bfloat16)
    packed, out = batch(given), row_buffers(ROWS, (3, 1), torch.bfloat16)
    plan = soft_rows(packed)
    rows = pack_rows(given, out, "advanced")
    if not torch.equal(packed.tokens[0, plan.advanced], rows.token):
        raise ValueError("plan and collation have other rows")
    found: dict[str, Contestant] = {
        "fast": lambda: soft_rows(packed),
        "fast, unchecked": lambda: soft_rows(packed, validate=False),
        "fast, of a size": lambda: soft_rows(packed, size=ROWS, validate=False),
        "fast, hard rows": lambda: hard_rows(packed),
        "fast, three steps": lambda: rollout_rows(packed, 3),
        "fast, collated": lambda: pack_rows(given, out, "advanced"),
        "dense": lambda: dense(packed),
    }
    peer = speculators(given, 1, torch.bfloat16)
    return found if peer is None else found | {"speculators": peer}


def collation(width: int) -> dict[str, Contestant]:
    """Rows of a width, from documents to what a step is fed."""
    dtype = torch.bfloat16
    given, out = documents(width, dtype), row_buffers(ROWS, (3 * width, width), dtype)
    source = [torch.randn(*shape).to(dtype) for shape in (out.feature.shape, out.target.shape)]
    found: dict[str, Contestant] = {
        "fast": lambda: pack_rows(given, out, "advanced"),
        "fast, new buffers": lambda: pack_rows(given, row_buffers(ROWS, (3 * width, width), dtype), "advanced"),
        "copy": lambda: [to.copy_(of) for to, of in zip((out.feature, out.target), source)],
    }
    peer = speculators(given, width, dtype)
    if peer is not None:
        compared(pack_rows(given, out, "advanced"), peer())
        found["speculators"] = peer
    return found


def visibility() -> dict[str, Contestant]:
    """Blocks of 128 for flex attention; without a plan's cached parts."""
    flex = importlib.import_module("torch.nn.attention.flex_attention")
    given = documents(1, torch.bfloat16)
    rows = pack_rows(given, row_buffers(ROWS, (3, 1), torch.bfloat16))
    found: dict[str, Contestant] = {
        "fast": lambda: rows.visibility.block_mask(),
        "fast, documents": lambda: rows.visibility.documents(),
        "fast, dense": lambda: rows.visibility.dense(),
        "create_block_mask": lambda: flex.create_block_mask(
            rows.visibility.predicate, None, None, ROWS, ROWS, device="cpu"
        ),
    }
    if not torch.equal(found["fast"]().to_dense(), found["create_block_mask"]().to_dense()):
        raise ValueError("other blocks")
    try:
        attention = importlib.import_module("speculators.models.eagle3.attention")
    except ImportError:
        return found
    predicate = attention.create_combined_mask_mod(rows.document, ROWS)
    return found | {"speculators": lambda: flex.create_block_mask(predicate, None, None, ROWS, ROWS, device="cpu")}


def main() -> None:
    """Print a table each; write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--widths", type=int, nargs="*", default=[1, 64, 1024, 4096])
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    tables = [("planning", planning(), asked.rounds), ("visibility", visibility(), max(asked.rounds // 20, 3))]
    report = []
    for name, runs, rounds in tables:
        report.append(told(name, timed(runs, rounds)))
    for width in asked.widths:
        rounds = max(asked.rounds // max(width // 64, 1), 9)
        report.append(told(f"collation, d = {width}", timed(collation(width), rounds)))
    if asked.json is not None:
        asked.json.write_text(json.dumps(report, indent=1))


def told(name: str, found: dict[str, list[float]]) -> dict[str, Any]:
    """The table, printed."""
    own = statistics.median(found["fast"])
    print(f"{name}, S = {ROWS}, {len(LENGTHS)} documents")
    table = {}
    for contestant, seconds in found.items():
        median = statistics.median(seconds)
        table[contestant] = {"seconds": median, "least": min(seconds), "most": max(seconds), "ratio": median / own}
        least = f"(least {1e3 * min(seconds):.3f})"
        print(f"  {contestant:20} {1e3 * median:9.3f} ms {least}  {median / own:6.2f}", flush=True)
    return {"table": name, "contestants": table}


if __name__ == "__main__":
    main()
