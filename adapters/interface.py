"""What an adapter may provide, and how it says so.

An adapter is a plain module (or a class, or any namespace inside one) with a `DECLARATION` and functions
named after the operations; a function that is missing means "not provided". It translates its
implementation's calling convention and nothing else: what it converts it declares, what is wrong it
lets through.
"""

from __future__ import annotations

import difflib
import importlib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

CONTRACTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "rows": ("soft_rows", "hard_rows", "supervision_at_source", "gather_rows", "rollout_rows"),
        "losses": (
            "feature_regression",
            "soft_cross_entropy",
            "eagle1_loss",
            "topk_distillation",
            "hass_loss",
            "rollout_loss",
            "draft_to_target",
            "state_gradient",
            "training_step",
        ),
        "noise": ("feature_noise", "noisy_sample"),
        "tree": ("grow_tree", "select_nodes", "flatten_tree", "tree_visibility", "tree_mask", "draft_tree"),
        "visibility": ("rollout_visibility", "rollout_mask", "rollout_attention"),
        "acceptance": ("warp", "verify_greedy", "verify_sampled", "verify_random", "propose"),
        "publish": ("publish", "interrupted_publish"),
        "drafter": ("draft_logits",),
        "manifest": ("check_release",),
        "metrics": ("summarise_rounds",),
        "decode": ("generate", "next_law"),
    }
)
"""Contract → its operations, the fixed names of the interface."""

OPERATIONS: tuple[str, ...] = tuple(name for names in CONTRACTS.values() for name in names)

DTYPES: Mapping[str, float] = MappingProxyType(
    {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
)
"""Arithmetic dtype → unit roundoff (half the distance from 1 to the next number)."""

PROMISES = ("seed", "batch_independent", "request_independent")

COIN_SCHEMES = ("per_node", "per_parent", "sample_and_match", "block")
TOP_K_TIES = ("exact", "keep")
CONVENTIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "coin_scheme": COIN_SCHEMES,
        "frontier_coin": ("inverse_cdf", "own"),
        "top_k_ties": TOP_K_TIES,
        "mask_owner": ("source", "advanced", "label"),
        "last_row": ("drop", "pad"),
        "row_anchor": ("start", "absolute"),
        "rollout_position": ("anchor_plus_step", "own"),
        "rollout_gradient": ("flows", "detached"),
        "first_row_fill": ("none", "feature", "zeros"),
        "packing": ("segments", "none"),
        "denominator": ("supervised", "mask", "rows"),
        "restricted_target": ("renormalised", "raw"),
        "gate": ("argmax", "none"),
        "divergence": ("cross_entropy", "kl"),
        "reduction": ("sum", "mean"),
        "draft_map": ("offset", "absolute"),
        "root_in_verification": ("yes", "no"),
        "selection_order": ("value", "node"),
        "draft_kv": ("recomputed", "kept"),
        "accepted_count": ("drafts", "drafts_and_frontier"),
        "fusion_order": ("embedding_first", "feature_first"),
    }
)
"""Convention → its values, the default first. A trainer declares what its code fixes; what is not declared in
`losses` is an argument of the operation, as it is of the oracle's."""
NUMERIC_CONVENTIONS = ("position_base", "denominator_epsilon", "step_decay")
"""Conventions whose value is a number, written out: "1", "1e-05", "0.8"."""
NOISE_AMPLITUDES = ("paper", "length_scaled")
"""`noise_amplitude` is one of these laws, or the half-width itself, such as "0.05"."""
WARP_STAGES = ("temperature", "top_k", "top_p", "min_p")


class AdapterError(Exception):
    """The adapter, not the implementation behind it, is at fault; the message is for its author."""


class NotApplicable(Exception):
    """Raised by an adapter for an input that its implementation has no notion of; say why."""


class Broken(Exception):
    """Raised by an adapter where its implementation gave no answer at all: it crashed, hung, or wrote what is none.

    So it is no refusal of a bad input, which any other exception is taken for.
    """


@dataclass(frozen=True)
class Deviation:
    """A known difference from a clause: why, and a public link or the case that shows it."""

    clause: str
    reason: str
    link: str = ""
    witness: str = ""
    """Name of a case in `conformance.<contract>.cases.WITNESSES` that shows it."""
    fixtures: tuple[str, ...] = ()
    """Ids of golden cases that show it, beside those that bear its clause where there is a link."""


@dataclass(frozen=True)
class Arithmetic:
    """How the implementation computes, so that tolerances can be derived instead of chosen.

    dtype: the dtype of its probabilities. coin_dtype: of its accept coins. via_logits: whether target
    rows (and, with `draft_via_logits`, draft rows) reach it as logarithms and pass a softmax.
    """

    dtype: str = "float64"
    coin_dtype: str = "float64"
    via_logits: bool = False
    draft_via_logits: bool = False


@dataclass(frozen=True)
class Engine:
    """What `generate` serves, for whoever makes requests for it.

    vocabulary: token ids lie in [0, vocabulary). longest: most tokens of prompt and output together. draft_length:
    drafts a round where the case does not say. roundings and scale bound what batching may do to a target logit:
    roundings is the number of roundings on the longest way to a logit, scale the largest magnitude of what is rounded.
    hottest: the highest temperature that it takes.
    """

    vocabulary: int
    longest: int
    draft_length: int
    roundings: int
    scale: float
    hottest: float = math.inf


@dataclass(frozen=True)
class Declaration:
    """What an adapter says of its implementation.

    name, version: as the report prints them. links: where the code lives. conventions: the names of
    design's list that apply, and their values. deviations: known differences. arithmetic: see
    `Arithmetic`. cost: operation → seconds one case costs (slow implementations get fewer trials).
    promises: "seed" (same cases and seeds, same decisions and outputs), "batch_independent" (a member's
    decision does not depend on the members beside it), "request_independent" (nor does the output of a
    sampled request of `generate`). generators: global generators that the implementation
    draws from ("python", "numpy", "torch"); every other one stays untouched. is_oracle: the
    implementation is the oracle, so the expected side comes from the second road alone. engine: what
    `generate` serves, where it is provided.
    """

    name: str
    version: str
    links: tuple[str, ...] = ()
    conventions: Mapping[str, str] = field(default_factory=dict)
    deviations: tuple[Deviation, ...] = ()
    arithmetic: Arithmetic = Arithmetic()
    cost: Mapping[str, float] = field(default_factory=dict)
    promises: tuple[str, ...] = ()
    generators: tuple[str, ...] = ()
    is_oracle: bool = False
    engine: Engine | None = None


@dataclass(frozen=True)
class Implementation:
    """A resolved adapter: its declaration and the operations that it provides."""

    spec: str
    declaration: Declaration
    operations: Mapping[str, Callable[..., Any]]
    hints: tuple[str, ...] = ()
    """Names that look like a misspelt operation: told, never guessed."""


def load(spec: str) -> Implementation:
    """Import `module` or `module:attribute` and read its interface.

    Raises `AdapterError` with a message for the adapter's author.
    """
    module_name, _, attribute = spec.partition(":")
    try:
        namespace: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise AdapterError(f"--impl={spec}: cannot import {module_name!r}: {error}") from error
    except Exception as error:
        raise AdapterError(
            f"--impl={spec}: importing {module_name!r} raised {type(error).__name__}: {error}"
        ) from error
    for name in filter(None, attribute.split(".")):
        if not hasattr(namespace, name):
            try:
                namespace = importlib.import_module(f"{namespace.__name__}.{name}")
                continue
            except (ImportError, AttributeError):
                raise AdapterError(f"--impl={spec}: {module_name!r} has no attribute {name!r}") from None
        namespace = getattr(namespace, name)
    declaration = getattr(namespace, "DECLARATION", None)
    if not isinstance(declaration, Declaration):
        found = "nothing" if declaration is None else type(declaration).__name__
        raise AdapterError(
            f"--impl={spec}: an adapter defines DECLARATION, an adapters.interface.Declaration; found {found}"
        )
    _check(spec, declaration)
    operations = {}
    for name in OPERATIONS:
        function = getattr(namespace, name, None)
        if function is None:
            continue
        if not callable(function):
            raise AdapterError(
                f"--impl={spec}: {name} is an operation, so it is a function; found {type(function).__name__}"
            )
        operations[name] = function
    if "generate" in operations and declaration.engine is None:
        raise AdapterError(f"--impl={spec}: DECLARATION.engine says what generate serves, and is missing")
    hints = []
    for name, value in sorted(vars(namespace).items()):
        if name.startswith("_") or name in OPERATIONS or not callable(value) or isinstance(value, type):
            continue
        if getattr(value, "__module__", None) != getattr(namespace, "__name__", None):
            continue
        for near in difflib.get_close_matches(name, [o for o in OPERATIONS if o not in operations], 1, 0.85):
            hints.append(f"{name!r} is no operation; did you mean {near!r}?")
    return Implementation(spec, declaration, MappingProxyType(operations), tuple(hints))


def _check(spec: str, declaration: Declaration) -> None:
    """Refuse a declaration that says something the suite cannot read."""

    def refuse(field_name: str, rule: str, found: object) -> None:
        raise AdapterError(f"--impl={spec}: DECLARATION.{field_name} = {found!r}: {rule}")

    for name in ("name", "version"):
        if not isinstance(getattr(declaration, name), str) or not getattr(declaration, name):
            refuse(name, "is a non-empty string", getattr(declaration, name))
    for name in ("dtype", "coin_dtype"):
        if getattr(declaration.arithmetic, name) not in DTYPES:
            refuse(f"arithmetic.{name}", f"is one of {', '.join(DTYPES)}", getattr(declaration.arithmetic, name))
    for operation, seconds in declaration.cost.items():
        if operation not in OPERATIONS:
            refuse("cost", "its keys are operations", operation)
        if not isinstance(seconds, (int, float)) or not 0 < seconds < 3600:
            refuse(f"cost[{operation!r}]", "is the seconds that one case takes", seconds)
    for promise in declaration.promises:
        if promise not in PROMISES:
            refuse("promises", f"a promise is one of {', '.join(PROMISES)}", promise)
    for generator in declaration.generators:
        if generator not in ("python", "numpy", "torch"):
            refuse("generators", "a global generator is python, numpy or torch", generator)
    order = declaration.conventions.get("filter_order", "temperature")
    joined = [part.split("+") for part in order.split(",")] if isinstance(order, str) and order else []
    stages = [stage for part in joined for stage in part]
    alone = all(len(part) == 1 for part in joined if "temperature" in part)
    if not isinstance(order, str) or len(set(stages)) != len(stages) or set(stages) - set(WARP_STAGES) or not alone:
        rule = (
            f"names each of {', '.join(WARP_STAGES)} at most once, in order; '+' joins filters that act together, and "
            "temperature is a stage of its own"
        )
        refuse("conventions['filter_order']", rule, order)
    for key, allowed in CONVENTIONS.items():
        if declaration.conventions.get(key, allowed[0]) not in allowed:
            refuse(f"conventions[{key!r}]", f"is one of {', '.join(allowed)}", declaration.conventions[key])
    for key in (*NUMERIC_CONVENTIONS, "noise_amplitude"):
        value = declaration.conventions.get(key, "0")
        if not _is_number(value) and not (key == "noise_amplitude" and value in NOISE_AMPLITUDES):
            refuse(f"conventions[{key!r}]", "is a number, written out", value)
    for deviation in declaration.deviations:
        if not isinstance(deviation, Deviation) or not deviation.clause or not deviation.reason:
            refuse("deviations", "a deviation names a clause and a reason", deviation)
        if not (deviation.link or deviation.witness or deviation.fixtures):
            refuse("deviations", "a deviation has a public link or the witness case that shows it", deviation.clause)
        if not all(isinstance(one, str) and re.fullmatch("[0-9a-f]{12}", one) for one in deviation.fixtures):
            refuse("deviations", "fixtures are ids of golden cases", deviation.fixtures)
    if declaration.engine is not None:
        _check_engine(declaration.engine, refuse)


def _check_engine(engine: object, refuse: Callable[[str, str, object], None]) -> None:
    """Whoever makes requests relies on these numbers."""
    if not isinstance(engine, Engine):
        refuse("engine", "is an adapters.interface.Engine, or None", engine)
        return
    for name, least in (("vocabulary", 2), ("longest", 2), ("draft_length", 1), ("roundings", 1)):
        value = getattr(engine, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            refuse(f"engine.{name}", f"is a whole number of at least {least}", value)
    if isinstance(engine.scale, bool) or not isinstance(engine.scale, (int, float)) or not 0 < engine.scale < math.inf:
        refuse("engine.scale", "is a finite number above 0", engine.scale)
    if isinstance(engine.hottest, bool) or not isinstance(engine.hottest, (int, float)) or not engine.hottest > 0:
        refuse("engine.hottest", "is a number above 0", engine.hottest)


def _is_number(text: object) -> bool:
    try:
        return isinstance(text, str) and math.isfinite(float(text))
    except ValueError:
        return False
