"""Does the suite keep its promise of false alarms? Two measurements, on correct implementations only.

    python -m bench.calibration [--runs 20000] [--seed 0] [--write docs/statistics.md]
    python -m bench.calibration --quick-runs 20 [--write docs/statistics.md]

The first draws what a round publishes from its exact law and looks at the e-process after every chunk: at
α = 0.05 at most 5 % of the runs, plus three standard errors, may alarm. The second runs the quick profile
against the reference under one seed after the other: each run has to pass.
"""

from __future__ import annotations

import argparse
import math
import re
import subprocess
import sys
from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np

from conformance.evidence import log_values
from oracle.errors import BadInput
from oracle.law import accepted_depth_law, completed, emitted_law

ALPHA = 0.05
CHUNKS = 20
CHUNK = 100
VOCABULARY = 3
DRAFTS = 2

_BATCH = 1000  # runs held in memory at once
_ROOT = Path(__file__).resolve().parent.parent


def published_laws() -> dict[str, list[float]]:
    """The exact laws of what a round with a chain of two drafts publishes, by name of the observation."""
    prefixes = [p for length in range(DRAFTS + 1) for p in product(range(VOCABULARY), repeat=length)]
    target = {p: _row(1 + i % 5, 2 + i % 3, 4) for i, p in enumerate(prefixes)}
    draft = {p: _row(3, 1 + i % 4, 1 + i % 2) for i, p in enumerate(prefixes)}
    chain = (-1, 0)
    whole = completed(emitted_law(target, draft, chain, "iid"), target, DRAFTS + 1)
    depths = accepted_depth_law(target, draft, chain, "iid")
    return {
        "next three tokens": [float(whole[sequence]) for sequence in sorted(whole)],
        "accepted drafts": [float(depth) for depth in depths],
    }


def false_alarms(law: Sequence[float], runs: int, seed: int) -> int:
    """How many of `runs` runs under the null `law` [k] alarm at one of their looks."""
    rng = np.random.default_rng(seed)
    alarms = 0
    for start in range(0, runs, _BATCH):
        batch = min(_BATCH, runs - start)
        counts = rng.multinomial(CHUNK, law, size=(batch, CHUNKS)).cumsum(axis=1)
        values = log_values(law, counts.reshape(-1, len(law))).reshape(batch, CHUNKS)
        alarms += int((values.max(axis=1) >= -math.log(ALPHA)).sum())
    return alarms


def calibrate(runs: int, seed: int) -> tuple[bool, str]:
    """Whether the e-process keeps α, and the result in Markdown."""
    if runs < 1:
        raise BadInput("runs", (), "a number of runs is at least one", runs)
    bound = ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / runs)
    lines = [
        f"{runs} runs, seed {seed}, {CHUNKS} looks a run, one every {CHUNK} observations. "
        f"Allowed: α + 3 standard errors = {bound:.2%}.",
        "",
        "| observation | categories | α | runs that alarmed | rate | kept |",
        "|---|---|---|---|---|---|",
    ]
    all_kept = True
    for name, law in published_laws().items():
        alarms = false_alarms(law, runs, seed)
        kept = alarms <= bound * runs
        all_kept = all_kept and kept
        verdict = "yes" if kept else "NO"
        lines.append(f"| {name} | {len(law)} | {ALPHA:.0%} | {alarms} | {alarms / runs:.2%} | {verdict} |")
    return all_kept, "\n".join(lines)


def quick_runs(runs: int) -> tuple[bool, str]:
    """Whether the quick profile passes the reference under the seeds 0 … runs − 1, and the result."""
    if runs < 1:
        raise BadInput("quick-runs", (), "a number of runs is at least one", runs)
    suite = [sys.executable, "-m", "pytest", "conformance", "--impl=adapters.reference", "-q"]
    suite += ["--conformance-profile", "quick", "--conformance-seed"]
    failed = [seed for seed in range(runs) if subprocess.run([*suite, str(seed)], cwd=_ROOT).returncode != 0]
    verdict = f"failed under the seeds {', '.join(map(str, failed))}" if failed else "all passed"
    return not failed, f"Quick profile against the reference, {runs} runs, seeds 0 to {runs - 1}: {verdict}."


def write_between(path: Path, name: str, text: str) -> None:
    """Replaces what stands between the markers `name:begin` and `name:end` in the file."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    page = path.read_text(encoding="utf-8")
    parts = re.split(f"({re.escape(begin)}|{re.escape(end)})", page)
    if parts[1::2] != [begin, end]:
        raise BadInput("write", (), f"a page has {begin} and {end} once, in this order", str(path))
    path.write_text(f"{parts[0]}{begin}\n{text}\n{end}{parts[4]}", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one measurement; 0 if the promise is kept, 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m bench.calibration", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=int, default=20_000, help="simulated runs of the e-process")
    parser.add_argument("--seed", type=int, default=0, help="seed of the simulated runs")
    parser.add_argument("--quick-runs", type=int, metavar="N", help="run the quick profile N times instead")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the result between the page's markers")
    options = parser.parse_args(arguments)
    if options.quick_runs is None:
        name, (kept, text) = "calibration", calibrate(options.runs, options.seed)
    else:
        name, (kept, text) = "quick-runs", quick_runs(options.quick_runs)
    print(text)
    if options.write is not None:
        write_between(options.write, name, text)
    return 0 if kept else 1


def _row(*weights: int) -> tuple[Fraction, ...]:
    return tuple(Fraction(weight, sum(weights)) for weight in weights)


if __name__ == "__main__":
    sys.exit(main())
