"""What importing the fast paths costs over torch, and that they need nothing else."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.running import ROOT, environment, run

MODULES = sorted(f"oracle.fast.{path.stem}" for path in (ROOT / "oracle" / "fast").glob("[a-z]*.py"))
MOST = 0.1
"""Seconds of a core that all modules together may take, compiled before. Where others use the core, all takes longer;
so a tenth of what torch itself takes is as good, which is a second on the machine of the bench."""
MEASURE = """
import importlib, json, sys, time
import numpy
start = time.process_time()
import torch
before, middle = set(sys.modules), time.process_time()
for name in sys.argv[1:]:
    importlib.import_module(name)
packages = sorted({name.partition('.')[0] for name in set(sys.modules) - before})
print(json.dumps([time.process_time() - middle, middle - start, packages]))
"""


def test_all_fast_paths_together_are_imported_in_a_tenth_of_a_second(tmp_path: Path) -> None:
    taken = []
    for _ in range(3):  # the first one compiles
        done = run([sys.executable, "-c", MEASURE, *MODULES], tmp_path, environment(OMP_NUM_THREADS="1"))
        assert done.code == 0, done.output
        own, of_torch, packages = json.loads(done.output.splitlines()[-1])
        taken.append(min(own, own / of_torch))
        third = {name for name in packages if name not in sys.stdlib_module_names and not name.startswith("_")}
        assert third <= {"oracle", "numpy"}, third
    assert min(taken) <= MOST, taken
