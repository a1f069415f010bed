"""The fast paths on a GPU, in one run: values by the whole suite, then times beside the card's own bounds.

    python -m bench.gpu [--device cuda] [--json FILE] [--page docs/fast.md]

1. The suite judges `adapters.fast:cuda` at its profile quick: every value and gradient against the oracle.
2. Each fast path is timed by the device's events: median of 30, and beside it the time that the bytes it cannot leave
   out take at the bandwidth of a copy on that card, or its products at the rate of a large one, whichever is longer.
3. Where a path claims not to wait for the host it runs with synchronisation forbidden, and replayed as a CUDA graph.

`--device cpu --small` is a dry run without a GPU: the same code on small inputs, whose times say nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from bench.device_tasks import Task, tasks
from bench.table import seconds, written

ROOT = Path(__file__).resolve().parent.parent
PART = "gpu"


def measured(call: Callable[[], object], device: torch.device, repeats: int) -> float:
    """Median seconds of a call, by the device's own clock."""
    for _ in range(3):
        call()
    taken: list[float] = []
    for _ in range(repeats):
        if device.type == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            start.record()
            call()
            end.record()
            torch.cuda.synchronize(device)
            taken.append(start.elapsed_time(end) / 1e3)
        else:
            begun = time.perf_counter()
            call()
            taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


def bandwidth(device: torch.device, small: bool) -> float:
    """Bytes read plus bytes written a second, by a copy larger than any cache."""
    held = torch.empty(2**20 if small else 2**30, dtype=torch.uint8, device=device)
    into = torch.empty_like(held)
    return 2 * held.nbytes / measured(lambda: into.copy_(held), device, 10)


def rate(device: torch.device, dtype: torch.dtype, small: bool) -> float:
    """Multiplications and additions a second, by a large matrix product."""
    size = 256 if small else 8192
    one = torch.randn(size, size, device=device, dtype=dtype)
    into = torch.empty_like(one)
    return 2 * size**3 / measured(lambda: torch.mm(one, one, out=into), device, 10)


def unattended(task: Task, device: torch.device) -> str:
    """Whether the host stays out of it: in words, for the table."""
    if not task.captured or device.type != "cuda":
        return "–" if not task.captured else "not asked on a CPU"
    torch.cuda.set_sync_debug_mode("error")
    try:
        task.call()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            task.call()
        graph.replay()
    except RuntimeError as error:
        return f"no: {str(error).splitlines()[0]}"
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize(device)
    return "yes"


def judged(device: torch.device) -> dict[str, Any]:
    """The suite's own verdict of the values: its last line, and its exit code."""
    spec = "adapters.fast:cuda" if device.type == "cuda" else "adapters.fast"
    command = [sys.executable, "-m", "pytest", "conformance", f"--impl={spec}", "--conformance-profile=quick"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    (verdict, *_) = [line for line in done.stdout.splitlines() if " → exit " in line] or [done.stdout[-2000:]]
    return {"command": " ".join(["python", *command[1:]]), "code": done.returncode, "verdict": verdict}


def report(device: torch.device, small: bool, judge: bool) -> dict[str, Any]:
    """All of it as data."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "a CPU, dry run"
    copied = bandwidth(device, small)
    rates = {dtype: rate(device, dtype, small) for dtype in (torch.float32, torch.bfloat16)}
    rows = []
    for task in tasks(device, small):
        torch.manual_seed(0)
        dtype = torch.bfloat16 if "bfloat16" in task.name else torch.float32
        bound = max(task.moved / copied, task.products / rates[dtype])
        taken = measured(task.call, device, 3 if small else 30)
        of = "products" if task.products / rates[dtype] > task.moved / copied else "bytes"
        rows.append(
            {
                "name": task.name,
                "size": task.size,
                "seconds": taken,
                "bound": bound,
                "of": of,
                "ratio": taken / bound,
                "unattended": unattended(task, device),
            }
        )
    told = {"card": name, "torch": torch.__version__, "bandwidth": copied}
    told["rates"] = {str(dtype).removeprefix("torch."): value for dtype, value in rates.items()}
    return told | {"suite": judged(device) if judge else None, "rows": rows}


def lines(found: dict[str, Any]) -> list[str]:
    """A page's part."""
    rates = ", ".join(f"{value / 1e12:.3g} T operations/s in {name}" for name, value in found["rates"].items())
    head = f"{found['card']}, torch {found['torch']}; copies move {found['bandwidth'] / 1e9:.0f} GB/s; {rates}."
    out = [head, ""]
    if found["suite"] is not None:
        out += [f"`{found['suite']['command']}`: {found['suite']['verdict']}", ""]
    out += ["| fast path | size | time | bound | times the bound | host stays out |", "|---|---|---:|---:|---:|---|"]
    for row in found["rows"]:
        bound = f"{seconds(row['bound'])} ({row['of']})"
        cells = [row["name"], row["size"], seconds(row["seconds"]), bound, f"{row['ratio']:.3g}", row["unattended"]]
        out.append(f"| {' | '.join(cells)} |")
    return out


def main(arguments: Sequence[str] | None = None) -> int:
    """0; 1 where the suite refutes a value or a path waits for the host though it claims not to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="small inputs, for a dry run")
    parser.add_argument("--no-suite", action="store_true", help="times alone")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", type=Path, help="write the table between the page's gpu marks")
    asked = parser.parse_args(arguments)
    device = torch.device(asked.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print("bench.gpu: torch finds no GPU; --device cpu --small is a dry run", file=sys.stderr)
        return 2
    found = report(device, asked.small, not asked.no_suite)
    print("\n".join(lines(found)))
    if asked.json is not None:
        asked.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if asked.page is not None:
        asked.page.write_text(
            written(asked.page.read_text(encoding="utf-8"), PART, "\n".join(lines(found))), encoding="utf-8"
        )
    wrong = found["suite"] is not None and found["suite"]["code"] != 0
    return int(wrong or any(row["unattended"].startswith("no:") for row in found["rows"]))


if __name__ == "__main__":
    sys.exit(main())
