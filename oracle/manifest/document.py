"""The manifest: a small typed document beside a checkpoint that says what the drafter was made for, and how.

Every value may be unsaid (None); what is said is of its type, and unknown keys are refused. The table of sections and
keys below is the one source of the reader, of the written form and of `schema/manifest.v1.json`.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oracle.errors import BadInput
from oracle.manifest import rules
from oracle.manifest.checkpoint import read_bounded
from oracle.manifest.rules import Rule
from oracle.types import DRAFTERS

FORMAT = "eagle-conformance/manifest/1"
LIMIT_BYTES = 2**20
DTYPES = ("float64", "float32", "float16", "bfloat16", "float8_e4m3", "float8_e5m2")
IDENTITIES = ("own", "target")


def _may(rule: Rule) -> Any:
    """A key that may be unsaid."""
    return field(default=None, metadata={"rule": rule})


@dataclass(frozen=True)
class Target:
    """The target that the drafter was trained for."""

    name: str | None = _may(rules.text())
    config: str | None = _may(rules.digest())
    weights: str | None = _may(rules.digest())
    tokenizer: str | None = _may(rules.digest())
    vocabulary_size: int | None = _may(rules.whole(1))
    hidden_size: int | None = _may(rules.whole(1))


@dataclass(frozen=True)
class Features:
    """What the drafter is fed. layers: "output of layer i", in the order of the columns. made_from: the fingerprint of
    the target's weights that a cached set of features was made from."""

    layers: tuple[int, ...] | None = _may(rules.many(rules.whole(0)))
    final_norm: str | None = _may(rules.one_of(("before", "after")))
    layout: str | None = _may(rules.one_of(("side_by_side", "stacked")))
    input_norm: str | None = _may(rules.one_of(("none", "each", "whole")))
    dtype: str | None = _may(rules.one_of(DTYPES))
    made_from: str | None = _may(rules.digest())


@dataclass(frozen=True)
class Part:
    """A head or an embedding: the drafter's own, or the target's. digest: of its dtype, shape and bytes."""

    identity: str | None = _may(rules.one_of(IDENTITIES))
    digest: str | None = _may(rules.digest())


@dataclass(frozen=True)
class DraftMap:
    """From draft ids to target ids. digest: of the absolute ids, whatever the convention of the file."""

    size: int | None = _may(rules.whole(1))
    convention: str | None = _may(rules.one_of(("offset", "absolute")))
    digest: str | None = _may(rules.digest())


@dataclass(frozen=True)
class Conventions:
    """Choices on which both sides have to agree; the names are those that adapters declare."""

    fusion_order: str | None = _may(rules.one_of(("embedding_first", "feature_first")))
    position_base: int | None = _may(rules.whole(0))
    mask_owner: str | None = _may(rules.one_of(("source", "advanced", "label")))
    last_row: str | None = _may(rules.one_of(("drop", "pad")))
    row_anchor: str | None = _may(rules.one_of(("start", "absolute")))
    rollout_position: str | None = _may(rules.one_of(("anchor_plus_step", "own")))
    rollout_gradient: str | None = _may(rules.one_of(("flows", "detached")))
    first_row_fill: str | None = _may(rules.one_of(("none", "feature", "zeros")))
    packing: str | None = _may(rules.one_of(("segments", "none")))
    denominator: str | None = _may(rules.one_of(("supervised", "mask", "rows")))
    denominator_epsilon: float | None = _may(rules.real(0))
    restricted_target: str | None = _may(rules.one_of(("renormalised", "raw")))
    gate: str | None = _may(rules.one_of(("argmax", "none")))
    divergence: str | None = _may(rules.one_of(("cross_entropy", "kl")))
    reduction: str | None = _may(rules.one_of(("sum", "mean")))
    root_in_verification: str | None = _may(rules.one_of(("yes", "no")))
    coin_scheme: str | None = _may(rules.one_of(("per_node", "per_parent", "sample_and_match", "block")))
    accept_operator: str | None = _may(rules.one_of(("<", "<=")))
    accepted_count: str | None = _may(rules.one_of(("drafts", "drafts_and_frontier")))
    residual: str | None = _may(rules.one_of(("state", "normed_state")))
    fed_back: str | None = _may(rules.one_of(("state", "normed_state")))
    draft_kv: str | None = _may(rules.one_of(("recomputed", "kept")))


@dataclass(frozen=True)
class Dtype:
    """weights: as stored. compute: as served."""

    weights: str | None = _may(rules.one_of(DTYPES))
    compute: str | None = _may(rules.one_of(DTYPES))


@dataclass(frozen=True)
class Tree:
    """The tree interface: whether a budget of nodes counts the root, and what a depth counts."""

    root_counted: bool | None = _may(rules.flag())
    depth: str | None = _may(rules.one_of(("drafts", "forwards_after_the_first")))
    budget: int | None = _may(rules.whole(1))
    maximum_depth: int | None = _may(rules.whole(1))
    branch_width: int | None = _may(rules.whole(1))


@dataclass(frozen=True)
class Training:
    """The objective and the weights of its terms; a step's weight by step."""

    objective: str | None = _may(rules.one_of(("eagle1", "hass", "rollout")))
    regression: float | None = _may(rules.real(0))
    classification: float | None = _may(rules.real(0))
    top_k: int | None = _may(rules.whole(1))
    top_k_weight: float | None = _may(rules.real(0))
    step_weights: tuple[float, ...] | None = _may(rules.many(rules.real(0)))


@dataclass(frozen=True)
class Noise:
    """law: "uniform" has the half-width `amplitude` at every length."""

    law: str | None = _may(rules.one_of(("none", "paper", "length_scaled", "uniform")))
    amplitude: float | None = _may(rules.real(0))


@dataclass(frozen=True)
class Positions:
    """maximum: how many positions. The rotary settings are the drafter's own, as trained."""

    maximum: int | None = _may(rules.whole(1))
    rope_theta: float | None = _may(rules.real(0, above=True))
    rope_type: str | None = _may(rules.text(40))
    rope_factor: float | None = _may(rules.real(0, above=True))
    rope_layout: str | None = _may(rules.one_of(("half", "interleaved")))


@dataclass(frozen=True)
class Manifest:
    """The whole document. layout: the one of `oracle.manifest.layouts` that the drafter's folder has."""

    variant: str | None = _may(rules.one_of(DRAFTERS))
    layout: str | None = _may(rules.text(40))
    target: Target = Target()
    features: Features = Features()
    head: Part = Part()
    embedding: Part = Part()
    map: DraftMap = DraftMap()
    conventions: Conventions = Conventions()
    dtype: Dtype = Dtype()
    tree: Tree = Tree()
    training: Training = Training()
    noise: Noise = Noise()
    positions: Positions = Positions()


SECTIONS: Mapping[str, type] = {
    f.name: type(f.default) for f in dataclasses.fields(Manifest) if dataclasses.is_dataclass(f.default)
}
"""Name of a section → its dataclass."""


def rules_of(kind: type) -> dict[str, Rule]:
    """Key → rule, of the keys that are no sections."""
    return {f.name: f.metadata["rule"] for f in dataclasses.fields(kind) if "rule" in f.metadata}


def read_manifest(path: Path) -> Manifest:
    """The manifest of a TOML file. Raises `BadInput` naming the file, the key and the rule."""
    name = path.name
    if not path.is_file():
        raise BadInput(str(path), (), "is a TOML file", "missing" if not path.exists() else "no plain file")
    content = read_bounded(path, LIMIT_BYTES)
    try:
        table = tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # TOMLDecodeError and UnicodeDecodeError are ValueErrors
        raise BadInput(name, (), f"is TOML in UTF-8: {error}") from None
    return from_table(table, name)


def from_table(table: Mapping[str, Any], name: str = "manifest") -> Manifest:
    """The manifest of a parsed document called `name`. Raises `BadInput` naming the document, the key and the rule."""
    if table.get("format") != FORMAT:
        raise BadInput(f"{name}: format", (), f"is {FORMAT!r}, which this version reads", table.get("format", "unsaid"))
    top = {key: value for key, value in table.items() if key != "format" and key not in SECTIONS}
    values = _read(top, Manifest, name, "")
    for key, kind in SECTIONS.items():
        if key in table:
            if not isinstance(table[key], dict):
                raise BadInput(f"{name}: {key}", (), "is a table", type(table[key]).__name__)
            values[key] = kind(**_read(table[key], kind, name, f"{key}."))
    return Manifest(**values)


def _read(table: Mapping[str, Any], kind: type, name: str, prefix: str) -> dict[str, Any]:
    known = rules_of(kind)
    found = {}
    for key, value in table.items():
        where = f"{name}: {prefix}{key}"
        if key not in known:
            others = SECTIONS if kind is Manifest else ()
            raise BadInput(where, (), f"is no key; known ones are {', '.join([*known, *others])}")
        found[key] = known[key].read(value)
        if found[key] is None:
            raise BadInput(where, (), known[key].words, value)
    return found


def said(manifest: Manifest) -> Iterator[tuple[str, Any]]:
    """Every key that says something, dotted, with its value."""
    for f in dataclasses.fields(manifest):
        value = getattr(manifest, f.name)
        if f.name in SECTIONS:
            yield from ((f"{f.name}.{key}", held) for key, held in vars(value).items() if held is not None)
        elif value is not None:
            yield f.name, value


def keys() -> list[str]:
    """Every key that a manifest may say, dotted."""
    sections = [f"{section}.{key}" for section, kind in SECTIONS.items() for key in rules_of(kind)]
    return [*rules_of(Manifest), *sections]


def unsaid(manifest: Manifest) -> list[str]:
    """Every key that says nothing, dotted."""
    spoken = {key for key, _ in said(manifest)}
    return [key for key in keys() if key not in spoken]


def merged(first: Manifest, second: Manifest) -> Manifest:
    """What `first` says, and of `second` what `first` leaves unsaid."""

    def filled(one: Any, other: Any) -> Any:
        kept = {key: value if value is not None else getattr(other, key) for key, value in vars(one).items()}
        return dataclasses.replace(one, **kept)

    sections = {name: filled(getattr(first, name), getattr(second, name)) for name in SECTIONS}
    whole: Manifest = dataclasses.replace(filled(first, second), **sections)
    return whole


def as_table(manifest: Manifest) -> dict[str, Any]:
    """The document as a plain table, the one that a TOML writer takes; what is unsaid is left out."""
    return {"format": FORMAT, **_nested(dict(said(manifest)))}


def _nested(spoken: Mapping[str, Any]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for key, value in spoken.items():
        plain = list(value) if isinstance(value, tuple) else value
        section, _, inner = key.rpartition(".")
        if section:
            table.setdefault(section, {})[inner] = plain
        else:
            table[key] = plain
    return table


def schema() -> dict[str, Any]:
    """The same rules as a JSON schema; `schema/manifest.v1.json` holds it."""
    sections = {
        key: {
            "type": "object",
            "additionalProperties": False,
            "properties": {name: dict(rule.schema) for name, rule in rules_of(kind).items()},
        }
        for key, kind in SECTIONS.items()
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Manifest of a drafter release",
        "type": "object",
        "additionalProperties": False,
        "required": ["format"],
        "properties": {
            "format": {"const": FORMAT},
            **{name: dict(rule.schema) for name, rule in rules_of(Manifest).items()},
            **sections,
        },
    }
