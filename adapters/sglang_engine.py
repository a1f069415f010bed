"""SGLang's EAGLE worker on a CPU, without the engine around it.

The files under test are real and run as they are: `srt/speculative/eagle_worker_v2.py`, `base_spec_worker.py`,
`eagle_utils.py`, `spec_utils.py`, `srt/models/llama_eagle3.py` and all of `sglang.kernels`, and for publication those
that `_REAL` names below them. What they import of the rest of the engine (attention backends, schedulers, weight
loaders; packages that come with CUDA) is only named on the paths that run here: these names are stand-ins, which can be
subclassed, called and entered, and do nothing.

`torch.compile` is left out, so `_select_top_k_tokens_later` runs as it is written. Four names of these files are set:
- `build_tree_kernel_efficient_func` is the Triton kernel, as on the engine's XPU branch;
- `renorm_draft_probs` hands on what it is given: the draft model's rows are probabilities already;
- `get_spec`, `get_exec` and `get_schedule` are a server without rejection sampling and without CUDA graphs;
- `select_top_k_tokens` keeps a record of what went in and came out.
"""

from __future__ import annotations

import functools
import importlib
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

from adapters import triton_interpreter
from adapters.interface import AdapterError
from oracle.types import DraftMapCase

MISSING = (
    "adapters.sglang needs `pip install -r adapters/requirements/sglang.txt` and then "
    "`pip install --no-deps sglang==0.5.23` ({})"
)
LARGEST_BATCH = 4096
_REAL = {
    "worker": "sglang.srt.speculative.eagle_worker_v2",
    "base": "sglang.srt.speculative.base_spec_worker",
    "utils": "sglang.srt.speculative.eagle_utils",
    "spec": "sglang.srt.speculative.spec_utils",
    "eagle3": "sglang.srt.models.llama_eagle3",
    "common": "sglang.srt.speculative.eagle_worker_common",
    "input": "sglang.srt.speculative.spec_info",
    "info": "sglang.srt.speculative.eagle_info",
    "results": "sglang.srt.managers.utils",
    "requests": "sglang.srt.managers.schedule_batch",
    "processor": "sglang.srt.managers.scheduler_components.batch_result_processor",
    "memory": "sglang.srt.mem_cache.memory_pool",
    "release": "sglang.srt.mem_cache.common",
}
_ABOVE = (
    "sglang.srt.speculative",
    "sglang.srt.models",
    "sglang.srt.managers",
    "sglang.srt.managers.scheduler_components",
    "sglang.srt.mem_cache",
)
_BELOW = ("sglang.srt.environ", "sglang.srt.platforms", "sglang.srt.runtime_context", "sglang.srt.utils")
_ABSENT = ("huggingface_hub", "sgl_kernel", "transformers", "tvm_ffi")


@functools.cache
def engine() -> Any:
    """The modules under test, torch, and `steps`: the record of `select_top_k_tokens`."""
    triton_interpreter.interpret("sglang")
    try:
        import torch

        tree = importlib.import_module("sglang.kernels.ops.speculative.spec_tree")
        with stand_ins(), mock.patch.object(torch, "compile", lambda **_: lambda function: function):
            found = SimpleNamespace(**{name: importlib.import_module(path) for name, path in _REAL.items()})
    except ImportError as error:
        raise AdapterError(MISSING.format(error)) from error
    found.torch, found.modes, found.steps = torch, tree.TreeMaskMode, []
    select = found.spec.select_top_k_tokens

    def build(*arguments: Any) -> None:
        with triton_interpreter.launch():
            tree.sgl_build_tree_kernel_triton(*arguments)

    def recorded(i: int, probabilities: Any, *others: Any) -> Any:
        answer = select(i, probabilities, *others)
        found.steps.append((probabilities, answer[3]))
        return answer

    found.utils.build_tree_kernel_efficient_func = build
    found.worker.select_top_k_tokens = recorded
    found.worker.renorm_draft_probs = lambda rows, *_: rows
    found.worker.get_spec = lambda: SimpleNamespace(speculative_use_rejection_sampling=False)
    found.base.get_exec = lambda: SimpleNamespace(graph=SimpleNamespace(cuda_graph_config=None))
    found.base.get_schedule = lambda: SimpleNamespace(max_running_requests=LARGEST_BATCH)
    return found


def hot_token_id(case: DraftMapCase | None) -> Any:
    """The engine's map from draft ids to target ids.

    A checkpoint's `d2t`, an offset, is loaded by the EAGLE-3 model; a map of target ids is the file of
    `--speculative-token-map`.
    """
    e = engine()
    if case is None:
        return None
    d2t = e.torch.from_numpy(np.array(case.d2t))
    if case.convention == "offset":
        model = SimpleNamespace(named_parameters=lambda: [])
        weights = [("d2t", d2t)]
        if case.t2d is not None:
            weights.append(("t2d", e.torch.from_numpy(np.array(case.t2d))))
        e.eagle3.LlamaForCausalLMEagle3.load_weights(model, weights)
        return model.hot_token_id
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hot_token_id.pt"
        e.torch.save(d2t.tolist(), path)
        return e.spec.load_token_map(str(path))


class DraftModel:
    """A draft model that looks rows up. Its hidden state spells where it is: the member, then the prefix, −1 padded."""

    canary_manager = None
    model_config = SimpleNamespace(hf_config=SimpleNamespace(architectures=["Table"]), model_is_mrope=False)

    def __init__(self, tables: Sequence[Any], steps: int) -> None:
        self._torch, self._tables = engine().torch, tables
        self.start = self._torch.full((len(tables), 1 + steps), -1, dtype=self._torch.float64)
        self.start[:, 0] = self._torch.arange(len(tables))

    def forward(self, batch: Any) -> Any:
        """The engine's call: one row for each input id after the state beside it."""
        states = batch.spec_info.hidden_states.clone()
        for state, token in zip(states, batch.input_ids.tolist(), strict=True):
            state[1 + int((state[1:] >= 0).sum())] = token
        output = SimpleNamespace(next_token_logits=self.rows(states), hidden_states=states)
        return SimpleNamespace(logits_output=output)

    def rows(self, states: Any) -> Any:
        """The tables' rows, float32 [states, V]. `KeyError` or `IndexError` where a table has none."""
        return self._torch.stack([self._row(*map(int, state)) for state in states.tolist()])

    def _row(self, member: int, *padded: int) -> Any:
        prefix, table = tuple(token for token in padded if token >= 0), self._tables[member]
        row = table[prefix] if hasattr(table, "keys") else np.asarray(table[len(prefix)])[prefix]
        return self._torch.tensor(np.asarray(row, dtype=np.float64), dtype=self._torch.float32)


class _Class(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _StandIn


class _StandIn(metaclass=_Class):
    """A class of the engine that is not there."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass


class _Module(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Class(name, (_StandIn,), {})


class _Finder(MetaPathFinder, Loader):
    def __init__(self, stands: Callable[[str], bool]) -> None:
        self._stands = stands

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if self._stands(name) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def _stands(name: str) -> bool:
    """Whether a module is only named on the paths that run here."""
    of_engine = name.startswith("sglang.srt.") and name not in (*_REAL.values(), *_ABOVE)
    return not name.startswith(_BELOW) and (of_engine or name.partition(".")[0] in _ABSENT)


@contextmanager
def stand_ins(stands: Callable[[str], bool] = _stands) -> Iterator[None]:
    """While it lasts, modules of which `stands` says so are stand-ins once they are imported."""
    finder = _Finder(stands)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
