"""The trainer that EAGLE-1/2 and HASS share: a data set of features, a collator, a loop with its losses inline.

The command line is read empty, so every setting has the value that the script gives it. What a script would load from
a disk, its samples, are handed to its data set; the statements of its loop, from the drafter's call to the loss, run
with the batch that its collator makes. The drafter is the clone's own, tiny and random; hooks see what it is fed.
"""

from __future__ import annotations

import argparse
import dataclasses
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from adapters import tracers
from adapters.backward import twice
from adapters.clones import Clone, Namespace, Standing
from adapters.interface import AdapterError, NotApplicable
from adapters.samples import Sample, counted_from_zero, samples
from oracle.types import (
    Flags,
    GatherCase,
    GatheredRows,
    Ids,
    LossResult,
    NoiseCase,
    NoisySample,
    RolloutRows,
    Rows,
    SampleCase,
    SupervisionCase,
    TokenBatch,
)

if TYPE_CHECKING:
    from torch import Tensor

Drafter = Callable[..., Any]


@dataclass
class Run:
    """One pass through the loop's statements; a list has an entry a step.

    target, mask, terms: what `compute_loss` got and gave. total: the losses that were back-propagated. loss: the one
    that the loop is left with.
    """

    predicted: list[Tensor] = field(default_factory=list)
    target: list[Tensor] = field(default_factory=list)
    mask: list[Tensor] = field(default_factory=list)
    terms: list[tuple[Tensor, ...]] = field(default_factory=list)
    total: list[Tensor] = field(default_factory=list)
    loss: Any = None


class Script:
    """The training script of a clone. `first` and `last` are the names that its loop's statements begin and end with;
    `settings` are the module's variables that its configuration is made of."""

    def __init__(self, clone: Clone, name: str, first: str, last: str, settings: Sequence[str]) -> None:
        self._clone, self._name, self._first, self._last, self._settings = clone, name, first, last, settings

    def namespace(self) -> Namespace:
        """A fresh namespace with the script's settings, data set, collator, noise and loss."""
        torch = import_torch(self._clone)
        source = self._clone.source(self._name)
        names: Namespace = {
            "__name__": self._name,
            "argparse": Standing(argparse, ArgumentParser=_Unasked),
            "torch": Standing(torch),
            "nn": torch.nn,
            "Dataset": torch.utils.data.Dataset,
            **{name: getattr(typing, name) for name in ("Any", "Dict", "List")},
        }
        source.command_line(names)
        source.assign(names, *self._settings)
        source.define(names, "AddGaussianNoise", "AddUniformNoise", "CustomDataset", "DataCollatorWithPadding")
        source.define(names, "compute_loss")
        source.assign(names, "criterion", "aug")
        return names

    def run(self, names: Namespace, model: Drafter, data: dict[str, Any], head: Drafter) -> Run:
        """The loop's statements on one batch; `names` is spent."""
        found = Run()
        loss_of = names["compute_loss"]

        def observed_loss(target: Tensor, target_p: Tensor, predict: Tensor, loss_mask: Tensor) -> Any:
            made = loss_of(target, target_p, predict, loss_mask)
            found.predicted.append(predict)
            found.target.append(target)
            found.mask.append(loss_mask)
            found.terms.append(tuple(made[:-1]))
            return made

        names |= {
            "compute_loss": observed_loss,
            "model": model,
            "head": head,
            "data": data,
            "accelerator": SimpleNamespace(backward=found.total.append),
        }
        self._clone.source(self._name).between(self._first, self._last)(names)
        found.loss = names["loss"]
        return found

    def batch(self, names: Namespace, given: Sequence[tuple[Tensor, Tensor, Tensor]]) -> dict[str, Any]:
        """What the collator makes of samples (features, tokens, mask) that its data set has read."""
        files = [{"hidden_state": features, "input_ids": tokens, "loss_mask": mask} for features, tokens, mask in given]
        names["torch"].load = files.__getitem__
        data = names["CustomDataset"](range(len(files)))
        made: dict[str, Any] = names["DataCollatorWithPadding"]()([data[i] for i in range(len(files))])
        return made


@dataclass
class Fed:
    """What the drafter was fed at one step: [B, S], or [B, S, d]; `state` is None where it is fed features alone."""

    tokens: Tensor
    features: Tensor
    visible: Tensor
    positions: Tensor
    state: Tensor | None
    output: Tensor


class Watched:
    """The clone's own drafter, tiny and random, and what it is fed."""

    def __init__(self, clone: Clone, name: str, vocabulary: int, width: int) -> None:
        torch = import_torch(clone)
        names = model_names(torch)
        clone.source(name).define(names)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self._model = names["Model"](tiny_config(vocabulary, width)).double().eval()
        self.fed: list[Fed] = []
        self._seen: dict[str, Any] = {}
        self._model.embed_tokens.register_forward_pre_hook(lambda _, given: self._see("tokens", given[0]))
        # the first call of a forward is that of the features; HASS makes a second one for its states
        self._model.fc.register_forward_pre_hook(lambda _, given: self._see("fused", given[0]))
        self._model.layers[0].register_forward_pre_hook(self._see_layer, with_kwargs=True)

    @property
    def attention(self) -> Any:
        """The attention of its one layer."""
        return self._model.layers[0].self_attn

    def __call__(self, *given: Any, **named: Any) -> Tensor:
        self._seen = {}
        output: Tensor = self._model(*given, **named)
        states = named.get("q_hidden_states")
        batch, length = self._seen["tokens"].shape
        visible = self._seen["attention_mask"].diagonal(dim1=-2, dim2=-1)[:, 0] == 0
        self.fed.append(
            Fed(
                self._seen["tokens"],
                self._seen["fused"][..., -output.shape[-1] :],
                visible,
                self._seen["position_ids"].expand(batch, length),
                None if states is None else states[-1],
                output,
            )
        )
        return output

    def _see(self, name: str, value: Any) -> None:
        self._seen.setdefault(name, value)

    def _see_layer(self, _: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        for name in ("attention_mask", "position_ids"):
            self._see(name, named[name])


def gather(clone: Clone, script: Script, model: str, case: GatherCase) -> tuple[GatheredRows, Ids]:
    """The rows that the drafter is fed at step 0: all that attention lets be seen, fillers included; their sources."""
    torch = import_torch(clone)
    found = documents(case.batch)
    names = script.namespace()
    steps_of(names, 1)
    features = np.asarray(case.features, dtype=np.float64)
    width = features.shape[2]
    # rotary embeddings want an even width
    wide = np.concatenate([features, np.zeros((*features.shape[:2], width % 2))], axis=2)
    data = script.batch(names, cut(torch, found, wide, case.batch.tokens, case.batch.supervise))
    drafter = Watched(clone, model, int(case.batch.tokens[case.batch.valid].max()) + 1, wide.shape[2])
    run = script.run(names, drafter, data, head=lambda x: x)
    fed = drafter.fed[0]
    batch, source = addresses(found, fed.visible)
    rows = GatheredRows(
        batch=batch,
        feature=fed.features[fed.visible][:, :width].detach().double().numpy(),
        token=fed.tokens[fed.visible].numpy(),
        target=run.target[0][fed.visible][:, :width].double().numpy(),
        supervise=run.mask[0][fed.visible][:, 0].bool().numpy(),
        position=fed.positions[fed.visible].numpy(),
    )
    return rows, source


def documents(batch: TokenBatch) -> list[Sample]:
    """The samples of a batch; `NotApplicable` where there are none, or where they are not counted from 0."""
    found = samples(batch)
    if not found:
        raise NotApplicable("its collator makes no batch of no samples")
    counted_from_zero(batch, found)
    if len({sample.batch for sample in found}) < len(found):
        raise NotApplicable("a row of its batch is one sample: it packs nothing")
    return found


def cut(
    torch: Any, found: Sequence[Sample], features: Rows, tokens: Ids, mask: Flags
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Features, tokens and mask of each sample."""
    return [
        (
            torch.tensor(features[s.batch, s.addresses]),
            torch.tensor(np.asarray(tokens)[s.batch, s.addresses]),
            torch.tensor(np.asarray(mask)[s.batch, s.addresses]).long(),
        )
        for s in found
    ]


def addresses(found: Sequence[Sample], visible: Tensor) -> tuple[Ids, Ids]:
    """Batch row and address of each visible row of the trainer's batch, [samples, length]."""
    rows = visible.nonzero().tolist()
    batch = np.array([found[i].batch for i, _ in rows], dtype=np.int64)
    return batch, np.array([found[i].start + r for i, r in rows], dtype=np.int64)


def supervised_sources(rows_of: Callable[[GatherCase], tuple[GatheredRows, Ids]], case: SupervisionCase) -> Flags:
    """Which sources a trainer with an unshifted mask supervises when it is given the case's mask."""
    if case.owner != "source":
        raise NotApplicable("its mask is not shifted: a row is supervised by the flag of its source")
    count, length = case.batch.valid.shape
    batch = dataclasses.replace(case.batch, tokens=tracers.codes(count, length), supervise=np.asarray(case.token_mask))
    rows, source = rows_of(GatherCase(batch, tracers.features(count, length, 2)))
    found = np.zeros((count, length), dtype=bool)
    found[rows.batch, source] = rows.supervise
    return found


def rollout_nodes(nodes: Sequence[tuple[int, int, int, int, int, bool, int, int]]) -> RolloutRows:
    """Nodes (step, batch, anchor, consumed, target, supervise, position, state_from) as vectors."""
    columns = list(zip(*nodes)) if nodes else [()] * 8
    step, batch, anchor, consumed, target, _, position, state_from = (np.array(c, dtype=np.int64) for c in columns)
    flags = np.array(columns[5], dtype=bool)
    return RolloutRows(step, batch, anchor, consumed, target, flags, position, state_from)


def feature_noise(script: Script, case: NoiseCase) -> Rows:
    """What `aug` adds to a sample of zeros when torch's uniforms are those of the case."""
    if case.law != "length_scaled":
        raise NotApplicable("its noise is scaled by the length of the sample")
    unit = np.asarray(case.unit, dtype=np.float64)
    if case.length < 1 or not ((unit >= 0) & (unit < 1)).all():
        raise NotApplicable("a sample holds a token, and torch draws uniforms from [0, 1)")
    names = script.namespace()
    torch = names["torch"]
    # a sample [1, L, d] with room for all of them; the entries beyond are noise that nobody asked for
    length, width = case.length, max(1, -(-unit.size // case.length))
    drawn = torch.zeros(length * width, dtype=torch.float64)
    drawn[: unit.size] = torch.tensor(unit.reshape(-1))
    torch.rand_like = lambda like: drawn.reshape(like.shape)
    noisy = names["aug"]({"hidden_state_big": torch.zeros(1, length, width, dtype=torch.float64)})
    found: Rows = noisy["hidden_state_big"].reshape(-1)[: unit.size].reshape(unit.shape).numpy()
    return found


def noisy_sample(script: Script, case: SampleCase) -> NoisySample:
    """A sample of the data set as `aug` leaves it, drawn from torch's global generator."""
    names = script.namespace()
    torch = names["torch"]
    torch.manual_seed(case.seed)
    given = {"hidden_state_big": case.features, "target": case.targets}
    made = names["aug"]({name: torch.tensor(np.asarray(x, dtype=np.float64))[None] for name, x in given.items()})
    return NoisySample(made["hidden_state_big"][0].numpy(), made["target"][0].numpy())


def plain_beta(beta: float) -> None:
    """`NotApplicable` for a smooth-L1 other than the script's."""
    if beta != 1:
        raise NotApplicable("its nn.SmoothL1Loss has the beta of torch, 1")


def features_batch(names: Namespace, target: Any, mask: Any) -> dict[str, Any]:
    """A batch of one sample whose rows are those of a loss's case."""
    torch = names["torch"]
    rows = torch.tensor(np.array(target), dtype=torch.float32)[None]
    flags = torch.tensor(np.array(mask)).long()[None]
    return {
        "hidden_states": rows,
        "input_ids": flags * 0,
        "attention_mask": flags * 0 + 1,
        "target": rows,
        "loss_mask": flags,
    }


def frozen_head(names: Namespace, head: Any) -> Drafter:
    """The head of a case; what is fed to it is logits already where there is none."""
    torch = names["torch"]
    if head is None:
        return lambda rows: rows
    weight = torch.tensor(np.array(head), dtype=torch.float32)
    return lambda rows: torch.nn.functional.linear(rows, weight)


def answer(loss: Any, name: str, trained: Sequence[Any], stacked: bool, parts: Sequence[Any] = ()) -> LossResult:
    """A loss as the script gives it, and its gradient by autograd, twice; of all steps where `stacked`."""
    grad, again = (np.stack([g[0] for g in found]) if stacked else found[0][0] for found in twice(loss, list(trained)))
    told = tuple(float(part.detach()) for part in parts)
    return LossResult(float(loss.detach()), {name: grad}, told, {name: again})


def steps_of(names: Namespace, steps: int) -> None:
    """Set a script that rolls out to some steps, and its k to what any width allows; the other has no such settings."""
    for setting, value in (("forward_num_total", steps), ("topk", 1)):
        if hasattr(names["args"], setting):
            setattr(names["args"], setting, value)


def model_names(torch: Any) -> Namespace:
    """What the files of drafters refer to."""
    import math

    try:
        from transformers.activations import ACT2FN
    except ImportError as error:
        raise AdapterError(f"a clone's drafter needs transformers: see adapters/requirements ({error})") from error
    return {
        "__name__": "drafter",
        "math": math,
        "torch": torch,
        "nn": torch.nn,
        "F": torch.nn.functional,
        "ACT2FN": ACT2FN,
        **{name: getattr(typing, name) for name in ("Any", "Dict", "List", "Optional", "Tuple", "Union")},
    }


def tiny_config(vocabulary: int, width: int, **more: Any) -> Any:
    """A drafter of one layer and one head, in the names of Llama's configurations."""
    sizes = {
        "vocab_size": vocabulary,
        "hidden_size": width,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "num_hidden_layers": 1,
        "intermediate_size": 2 * width,
        "max_position_embeddings": 64,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_scaling": None,
        "pretraining_tp": 1,
        "pad_token_id": None,
    }
    return SimpleNamespace(**sizes | more)


def import_torch(clone: Clone) -> Any:
    """torch; `AdapterError` where it is missing, or the clone is, which is told first."""
    clone.file(clone.marker)
    try:
        import torch
        import torch.utils.checkpoint
        import torch.utils.data
    except ImportError as error:
        raise AdapterError(f"running a clone of {clone.repository} needs torch ({error})") from error
    return torch


class _Unasked(argparse.ArgumentParser):
    """A parser that reads an empty command line, whatever this process was started with."""

    def parse_args(self, *_: Any, **__: Any) -> Any:
        return super().parse_args([])
