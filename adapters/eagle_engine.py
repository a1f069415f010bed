"""EAGLE's own engine, `EaModel`, over the tiny models of `adapters.tiny_models`.

- `adapters.eagle:engine` is EAGLE-3 and `adapters.eagle:engine1` EAGLE-1 with dynamic trees, from a clone of yours (see
  `adapters.eagle`), in an environment of their own.
- `adapters.eagle:release` is EAGLE-1 with its static tree, in the package eagle-llm.

The code under test is `eagenerate`, and `naivegenerate` without speculation (`naive_generate`, greedy alone, in the
package). It decodes one request at a time, so requests run one after the other.

What is converted, and nothing else: a limit is `max_new_tokens` (`max_steps` in `naive_generate`); the output is what
comes back behind the prompt. A stop token takes the place of the tokenizer's end token; the clone has a place for a
second one, Llama-3's `<|eot_id|>`. Before each request Python's and torch's generators get its seed. Margins are those
of the rows that the head gives a plain run; a speculative run shows none. `next_law` is the softmax of such a row
behind the processor that the engine makes of a temperature.

Not applicable: more stop tokens; another draft length than the tree's depth; sampling without speculation in the
package.

A speculative run in which nothing was drafted would say nothing: it is an `AdapterError`.
"""

from __future__ import annotations

import importlib
import json
import random
import sys
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from adapters import tiny_models
from adapters.clones import Clone
from adapters.interface import AdapterError, Arithmetic, Declaration, Deviation, Engine, NotApplicable
from oracle.types import GenerateCase, Generation, LawCase, Rows

SHAPE = tiny_models.Shape()
"""The target of EAGLE-3, which reads three of its layers."""
SMALL = tiny_models.Shape(layers=3, layer_gain=0.16)
"""The target of EAGLE-1."""
CLONE = Clone("EAGLE_CLONE", "https://github.com/SafeAILab/EAGLE", "eagle/model/ea_model.py")
NODES, LEVELS, WIDTH = 15, 4, 4
"""The clone's trees: drafted nodes, levels, and children of a node."""
STATIC_LEVELS = 5
"""Levels of the package's tree."""
_LOOP = (
    "https://github.com/SafeAILab/EAGLE/blob/cb7e0841fe0c206c6ed74a197ad5e2a1f13f5a2b/eagle/model/ea_model.py#L208-L308"
)
_NO_TOKEN = -7
"""An end token that no output has."""


def deviations(link: str, several: bool) -> tuple[Deviation, ...]:
    """What the loop's ends come to; several: whether there is a place for more than one stop token."""
    behind = (
        "`new_token > max_new_tokens` is looked at behind a round, and a round is kept whole: up to a tree too long"
    )
    stopped = "the end token is looked for behind a round, and a round is kept whole: accepted tokens follow it"
    named = [(201, behind), (203, behind), (301, stopped), (601, behind), (602, "a round is kept whole at its end")]
    named += [(302, stopped)] * several
    named.append(
        (902, "a limit below one is a limit that the first round is above; a temperature below zero is greedy")
    )
    return tuple(Deviation(f"DECODE-{n}", reason, link=link) for n, reason in named)


@dataclass
class _Running:
    """A model, and what its tokenizer says. gaps: of the two best logits, a call of the head each."""

    torch: Any
    model: Any
    module: Any
    ends: SimpleNamespace
    dynamic: bool
    drafted: int = 0
    accepted: int = 0
    gaps: list[float] = field(default_factory=list)


def served(levels: int, shape: tiny_models.Shape) -> Engine:
    """What an engine serves; a tree needs room behind the longest sequence."""
    return Engine(
        vocabulary=shape.vocabulary,
        longest=shape.longest - 64,
        draft_length=levels,
        roundings=tiny_models.roundings(shape),
        scale=tiny_models.scale(shape),
    )


class _FromClone:
    """A namespace with the operations."""

    def __init__(self, name: str, eagle3: bool) -> None:
        self._eagle3 = eagle3
        self.DECLARATION = Declaration(
            name=name,
            version=CLONE.revision(),
            links=(_LOOP,),
            arithmetic=Arithmetic(dtype="float32", via_logits=True),
            cost={"generate": 6e-2, "next_law": 6e-3},
            promises=("seed", "request_independent"),
            generators=("python", "torch"),
            deviations=deviations(_LOOP, several=True),
            engine=served(LEVELS, SHAPE if eagle3 else SMALL),
        )

    def generate(self, case: GenerateCase) -> list[Generation]:
        return generate(_clone(self._eagle3), case, LEVELS)

    def next_law(self, cases: Sequence[LawCase]) -> list[Rows]:
        return next_law(_clone(self._eagle3), cases)


engine = _FromClone("SafeAILab/EAGLE engine, EAGLE-3", eagle3=True)
engine1 = _FromClone("SafeAILab/EAGLE engine, EAGLE-1", eagle3=False)


def release_generate(case: GenerateCase) -> list[Generation]:
    """The package's requests."""
    return generate(_package(), case, STATIC_LEVELS)


def release_next_law(cases: Sequence[LawCase]) -> list[Rows]:
    """The laws of the package's target."""
    return next_law(_package(), cases)


def generate(running: _Running, case: GenerateCase, levels: int) -> list[Generation]:
    """Each request by itself."""
    number = len(case.prompts)
    if case.draft_length is not None and np.any(np.asarray(case.draft_length) != levels):
        raise NotApplicable(f"the tree has {levels} levels")
    if len(case.stop_tokens) > 1 + running.dynamic:
        raise NotApplicable(f"there is a place for {1 + running.dynamic} stop tokens")
    limits, temperatures, seeds = (
        np.broadcast_to(np.asarray(value), number) for value in (case.max_new_tokens, case.temperature, case.seed)
    )
    ends = [int(token) for token in case.stop_tokens] + [_NO_TOKEN] * 2
    running.ends.eos_token_id, running.ends.second = ends[:2]
    before = running.drafted
    generations = []
    for prompt, limit, temperature, seed in zip(case.prompts, limits, temperatures, seeds, strict=True):
        random.seed(int(seed))
        running.torch.manual_seed(int(seed))
        ids = running.torch.from_numpy(np.array(prompt, dtype=np.int64))[None]
        running.gaps.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            whole = _decode(running, ids, int(limit), float(temperature), case.speculative)
        tokens = whole[0, ids.shape[1] :].numpy()
        margins = None if case.speculative else np.array(running.gaps[: len(tokens)])
        generations.append(Generation(tokens, margins))
    if case.speculative and generations and running.drafted == before:
        raise AdapterError("no draft was verified")
    return generations


def next_law(running: _Running, cases: Sequence[LawCase]) -> list[Rows]:
    """The law behind each case's tokens."""
    laws: list[Rows] = []
    for case in cases:
        if case.temperature <= 0:
            raise NotApplicable("a greedy request has no processor")
        processor = running.module.prepare_logits_processor(temperature=float(case.temperature))
        running.module.reset_tree_mode(running.model)
        with running.torch.no_grad():
            ids = running.torch.from_numpy(np.array(case.tokens, dtype=np.int64))[None]
            row = processor(None, running.model.base_model(ids).logits[:, -1])
            laws.append(running.torch.softmax(row, dim=-1)[0].double().numpy())
    return laws


def _decode(running: _Running, ids: Any, limit: int, temperature: float, speculative: bool) -> Any:
    """Prompt and output."""
    model = running.model
    if running.dynamic:
        loop = model.eagenerate if speculative else model.naivegenerate
        second = running.ends.second != _NO_TOKEN
        return loop(ids, temperature=temperature, max_new_tokens=limit, is_llama3=second)
    if speculative:
        return model.eagenerate(ids, temperature=temperature, max_new_tokens=limit)
    if temperature > 1e-5:
        raise NotApplicable("naive_generate is greedy")
    steps = list(model.naive_generate(ids, max_steps=limit))
    return steps[-1] if steps else ids


@cache
def _clone(eagle3: bool) -> _Running:
    root = str(CLONE.file(CLONE.marker).parents[2])
    if root not in sys.path:
        sys.path.insert(0, root)
    target, drafter = tiny_models.target_folder(SMALL), tiny_models.eagle_folder(SMALL)
    if eagle3:
        target, drafter = tiny_models.target_folder(SHAPE), tiny_models.eagle3_folder(SHAPE)
    return _load(
        str(target),
        str(drafter),
        dynamic=True,
        use_eagle3=eagle3,
        total_token=NODES + 1,
        depth=LEVELS - 1,
        top_k=WIDTH,
    )


@cache
def _package() -> _Running:
    """It reads a drafter's weights from pytorch_model.bin alone, and unpickles it.

    So that file is made for this process, and gone once it is read: none that was found somewhere is ever loaded.
    """
    described = tiny_models.config(SMALL, 1, bias=False)
    with tempfile.TemporaryDirectory() as folder:
        _pickled(Path(folder), described, tiny_models.eagle(SMALL))
        return _load(str(tiny_models.target_folder(SMALL)), folder, dynamic=False)


def _pickled(folder: Path, described: dict[str, Any], weights: tiny_models.Weights) -> None:
    """config.json and pytorch_model.bin."""
    import torch

    (folder / "config.json").write_text(json.dumps(described), encoding="utf-8")
    torch.save({name: torch.from_numpy(value) for name, value in weights.items()}, folder / "pytorch_model.bin")


def _load(target: str, drafter: str, dynamic: bool, **options: Any) -> _Running:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch = importlib.import_module("torch")
            module: Any = importlib.import_module("eagle.model.ea_model")
    except ImportError as error:
        raise AdapterError(f"EAGLE's engine cannot be imported: {error}") from error
    torch.set_num_threads(1)
    ends = SimpleNamespace(eos_token_id=_NO_TOKEN, second=_NO_TOKEN)
    ends.convert_tokens_to_ids = lambda _: ends.second
    module.AutoTokenizer = SimpleNamespace(from_pretrained=lambda *_, **__: ends)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = module.EaModel.from_pretrained(
            base_model_path=target,
            ea_model_path=drafter,
            torch_dtype=torch.float32,
            **options,
        ).eval()
    running = _Running(torch, model, module, ends, dynamic)
    _watch(running)
    return running


def _watch(running: _Running) -> None:
    """Count what is verified, and see the rows of the target's head."""
    module, real = running.module, running.module.evaluate_posterior

    def verified(logits: Any, candidates: Any, *more: Any) -> Any:
        found = real(logits, candidates, *more)
        running.drafted += candidates.shape[1] - 1
        running.accepted += int(found[1])
        return found

    module.evaluate_posterior = verified

    def seen(_: Any, __: Any, rows: Any) -> None:
        best = rows.reshape(-1, rows.shape[-1])[-1].double().topk(2).values
        running.gaps.append(float(best[0] - best[1]))

    running.model.base_model.lm_head.register_forward_hook(seen)
