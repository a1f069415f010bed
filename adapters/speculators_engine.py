"""speculators at work: its collator, its EAGLE-3 forward with parts that only pass on what they get, its trainer.

Everything that decides (shifts, packing, masks, the loop over steps, losses, the optimizer's step) is the package's own
code. Replaced are the parts whose numbers do not matter: the layer, the norms and the heads, so that what reaches them
is seen as it is.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from adapters.interface import AdapterError
from adapters.samples import Sample
from oracle.types import Flags, Ids, Rows

VOCABULARY = 16


@dataclass(frozen=True)
class Package:
    """The modules of the package that are called."""

    torch: Any
    transformers: Any
    core: Any
    data: Any
    shift: Any
    metrics: Any
    losses: Any
    config: Any
    proposals: Any
    model: Any
    loading: Any
    trainer: Any
    schema: Any


@cache
def package() -> Package:
    """Import it the first time; `AdapterError` where it is not there."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    names = (
        *("torch", "transformers", "speculators.models.eagle3.core", "speculators.train.data"),
        *("speculators.models.eagle3.data", "speculators.models.eagle3.metrics", "speculators.losses"),
        *("speculators.config", "speculators.proposals.greedy", "speculators.model", "speculators.utils.loading"),
        *("speculators.train.trainer", "speculators.train.config.schema"),
    )
    try:
        found = Package(*(importlib.import_module(name) for name in names))
    except ImportError as error:
        raise AdapterError(
            f"adapters.speculators needs what adapters/requirements/trainers.txt lists, see its comments ({error})"
        ) from error
    found.torch.set_num_threads(1)
    return found


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """While it lasts, an attribute is another one."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def collated(
    found: Sequence[Sample], tokens: Ids, features: Rows, last: Rows, mask: Flags, max_len: int, dtype: Any
) -> dict[str, Any]:
    """The batch that the data loader hands to the trainer: all samples, packed into one sequence of `max_len`."""
    p = package()
    torch = p.torch

    class Documents(p.data.BaseDataset):  # type: ignore[misc,name-defined]
        def _compute_approx_lengths(self) -> list[int]:
            return [sample.length for sample in found]

        def _get_raw_data(self, index: int) -> dict[str, Any]:
            where = (found[index].batch, found[index].addresses)
            return {
                "hidden_states": torch.tensor(features[where], dtype=dtype),
                "input_ids": torch.tensor(tokens[where], dtype=torch.long),
                "verifier_last_hidden_states": torch.tensor(last[where], dtype=dtype),
                "loss_mask": torch.tensor(mask[where], dtype=torch.bool),
            }

    dataset = Documents(max_len, hidden_states_dtype=dtype)
    width = last.shape[2]
    collate = p.data.CollateFn(
        max_len,
        width,
        num_target_layers=features.shape[2] // max(width, 1),
        dtype=dtype,
        preprocess=p.shift.shift_batch,
    )
    batch: dict[str, Any] = collate([dataset[i] for i in range(len(found))])
    return batch


@dataclass(frozen=True)
class Step:
    """One step of the loop, an entry a row of the packed sequence: what the layer was fed, and what was made of it.

    token: code that the embedding was asked for. state: what stands beside it in the layer's input. position. target,
    supervise: of the row that the step's loss puts beside this row's logits; `counted` says whether it has any.
    """

    token: Ids
    state: Rows
    position: Ids
    target: Rows
    supervise: Flags
    counted: Flags


@dataclass(frozen=True)
class Rollout:
    """A run of the loop over one packed sequence; `document` is −1 for the collator's padding."""

    document: Ids
    steps: list[Step]


def made_at(step: int, row: int, length: int) -> float:
    """The code of the state made at a row of a step: negative, so that it is never that of an address."""
    return -1.0 - step * length - row


def maker(code: float, length: int) -> tuple[int, int]:
    """The step and the row that made a state."""
    return divmod(round(-code) - 1, length)


def rolled_out(batch: dict[str, Any], steps: int) -> Rollout:
    """The real forward over a collated batch, with parts that pass on and record what they get."""
    p = package()
    torch = p.torch
    width = batch["verifier_last_hidden_states"].shape[2]
    length = batch["input_ids"].shape[1]
    with torch.random.fork_rng(devices=[]):  # what modules are initialised with is nobody's business
        model = drafter(steps, 4, VOCABULARY)
    fed: list[tuple[Any, Any, Any]] = []
    judged: list[tuple[Any, Any, Any]] = []

    class Embedding(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, ids: Any) -> Any:
            return ids.to(torch.float64)[..., None].expand(*ids.shape, width)

    class Layer(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, hidden_states: Any, position_ids: Any, **_: Any) -> Any:
            step = len(fed)
            fed.append((hidden_states[0, :, 0], hidden_states[0, :, width:], position_ids[0]))
            codes = torch.tensor([made_at(step, row, length) for row in range(length)], dtype=torch.float64)
            return codes[None, :, None].expand(1, length, width)

    model.embed_tokens, model.layers = Embedding(), torch.nn.ModuleList([Layer()])
    for name in ("fc", "norm", "lm_head", "verifier_norm", "verifier_lm_head"):
        setattr(model, name, torch.nn.Identity())
    compound_loss = p.metrics.compound_loss

    def recorded(logits: Any, targets: Any, loss_mask: Any, *args: Any, **kwargs: Any) -> Any:
        judged.append((logits[0], targets[0], loss_mask[0]))
        return compound_loss(logits, targets, loss_mask, *args, **kwargs)

    with replaced(p.metrics, "compound_loss", recorded):
        model(**batch, **call_arguments(steps, loss_implementation="eager"))
    found = []
    for s, ((token, state, position), (logits, targets, mask)) in enumerate(zip(fed, judged, strict=True)):
        target = np.zeros((length, width))
        supervise, counted = np.zeros(length, dtype=bool), np.zeros(length, dtype=bool)
        for code, row_target, flag in zip(logits[:, 0].tolist(), targets.tolist(), mask.tolist()):
            step, row = maker(code, length)
            if step != s:
                raise AdapterError(f"step {s} judges the logits of step {step}")
            target[row], supervise[row], counted[row] = row_target, flag, True
        ids = np.array(token.tolist()).astype(np.int64)
        found.append(Step(ids, np.array(state.tolist()), np.array(position.tolist()), target, supervise, counted))
    return Rollout(np.array(batch["document_ids"][0].tolist(), dtype=np.int64), found)


def call_arguments(steps: int, **loss: str) -> dict[str, Any]:
    """What the trainer calls the forward with in a run of so many steps, by its own configuration.

    The loss and the decay of its steps are parameters; they are what a configuration says that names neither.
    """
    p = package()
    config = p.schema.TrainConfig(loss={"ttt_steps": steps, **loss})
    arguments: dict[str, Any] = p.core.Eagle3DraftModel.get_trainer_kwargs(**config.flatten())[0]
    return arguments


def step_losses(
    draft: Sequence[Any], target: Sequence[Any], supervise: Sequence[Any], arguments: dict[str, Any]
) -> tuple[Any, list[float]]:
    """The loss that the forward returns where its head makes the draft logits [R, Vd] of each step; the step losses.

    The forward has one target and one mask for all steps, and here each step has its own: they take the place of the
    forward's between its loop and `compute_metrics`, moved by as many fillers (NaN, unsupervised) as that cuts off. The
    loss, the step's weight and the sum are the forward's. A step loss is computed aside, with a decay of 1.
    """
    p = package()
    torch = p.torch
    steps, (rows, width), hidden = len(draft), draft[0].shape, 4
    length = rows + steps
    with torch.random.fork_rng(devices=[]):
        model = drafter(steps, hidden, VOCABULARY)
    parts: list[float] = []
    compute_metrics = p.core.compute_metrics

    class Layer(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, hidden_states: Any, **_: Any) -> Any:
            return hidden_states[..., hidden:]

    class Head(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, _: Any) -> Any:
            made = draft[len(parts)]
            return torch.cat([made, torch.full((length - rows, width), torch.nan)])[None]

    def judged(logits: Any, targets: Any, mask: Any, correct: Any, step: int, decay: float, **more: Any) -> Any:
        filler, unset = torch.full((step, width), torch.nan), torch.zeros(step, dtype=torch.bool)
        end = rows + step
        moved = (
            logits[:, :end],
            torch.cat([filler, target[step]])[None],
            torch.cat([unset, supervise[step]])[None],
        )
        parts.append(float(compute_metrics(*moved, None, step, 1.0, **more)[0].detach()))
        return compute_metrics(*moved, correct[:, :end], step, decay, **more)

    model.layers, model.lm_head = torch.nn.ModuleList([Layer()]), Head()
    for name in ("fc", "norm", "verifier_norm", "verifier_lm_head"):
        setattr(model, name, torch.nn.Identity())
    state, flags = torch.zeros((1, length, hidden)), torch.zeros((1, length), dtype=torch.bool)
    with replaced(p.core, "compute_metrics", judged):
        _, loss, _ = model(state, flags.long(), flags.long(), flags, None, state, **arguments)
    return loss, parts


def drafter(steps: int, width: int, vocabulary: int, attention: str = "eager") -> Any:
    """The draft model of a tiny configuration, which says how many tokens are drafted, and refuses fewer than one."""
    layer = layer_config(width, vocabulary)
    layer._attn_implementation = attention
    return package().core.Eagle3DraftModel(speculator_config(layer, vocabulary, steps, [0]))


def speculator_config(layer: Any, draft_vocabulary: int, steps: int, layers: list[int] | None) -> Any:
    """The configuration of a drafter around that of its layer; the target's layers it reads are three by default."""
    p = package()
    return p.core.Eagle3SpeculatorConfig(
        transformer_layer_config=layer,
        draft_vocab_size=draft_vocabulary,
        eagle_aux_hidden_state_layer_ids=layers,
        speculators_config=p.config.SpeculatorsConfig(
            algorithm="eagle3",
            proposal_methods=[p.proposals.GreedyTokenProposalConfig(speculative_tokens=steps)],
            default_proposal_method="greedy",
            verifier=p.config.VerifierConfig(name_or_path=None, architectures=["LlamaForCausalLM"]),
        ),
    )


def layer_config(width: int, vocabulary: int, layers: int = 1) -> Any:
    """A Llama of one head."""
    made: Any = package().transformers.LlamaConfig
    return made(
        hidden_size=width,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        vocab_size=vocabulary,
        max_position_embeddings=512,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )


def kept_ids(draft_to_target: Ids | None, vocabulary: int) -> list[int]:
    """The target ids whose head rows the package keeps for its draft vocabulary, in its order.

    Its own loader slices a head whose row v says v. A matrix product with a sliced identity would give the same logits,
    if 0·(−inf) were 0.
    """
    if draft_to_target is None:
        return list(range(vocabulary))
    p = package()
    torch = p.torch
    ids = torch.tensor(np.asarray(draft_to_target, dtype=np.int64))

    class Heads(p.model.DraftVocabMixin):  # type: ignore[misc,name-defined]
        pass

    config = SimpleNamespace(
        transformer_layer_config=layer_config(1, vocabulary),
        draft_vocab_size=len(ids),
        speculators_config=p.config.SpeculatorsConfig(
            algorithm="eagle3",
            proposal_methods=[p.proposals.GreedyTokenProposalConfig(speculative_tokens=1)],
            default_proposal_method="greedy",
            verifier=p.config.VerifierConfig(name_or_path="target", architectures=["LlamaForCausalLM"]),
        ),
    )
    heads = Heads()
    heads.config = config
    with torch.random.fork_rng(devices=[]):
        heads._init_vocab(config)
    t2d = torch.zeros(vocabulary, dtype=torch.bool)
    t2d[ids] = True
    heads.load_vocab_mappings(t2d, ids - torch.arange(len(ids)))
    weight = torch.arange(vocabulary, dtype=torch.float32)[:, None]
    given = {"embed_tokens.weight": weight, "lm_head.weight": weight}
    with replaced(p.loading, "load_model_layers", lambda *_: given):
        heads._load_verifier_weights()
    return [int(v) for v in heads.verifier_lm_head.weight[:, 0].tolist()]
