"""A right gate of releases, a small method for each clause: a fault is a subclass that overrides one of them."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from adapters.faulty.declared import Declared
from adapters.faulty.opening import Held, Opening, demand
from oracle.types import ReleaseCase, Violation

Said = tuple[str, str]
NO_SETTINGS = {"_name_or_path", "_commit_hash", "transformers_version", "torch_dtype", "dtype", "use_cache", "auto_map"}
NAMES = {"F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64"}
BEYOND = {"float16": 65520.0, "bfloat16": 3.396e38, "float32": math.inf, "float64": math.inf}
"""From here on a number is infinite in that dtype."""
IDS = "eagle_aux_hidden_state_layer_ids"
EAGLE3 = ("layer.hidden_norm.weight", "layer.input_layernorm.weight", "norm.weight", "d2t", "t2d")
LAYER = (
    *(f"layer.self_attn.{name}_proj.weight" for name in "qkvo"),
    *(f"layer.mlp.{name}_proj.weight" for name in ("gate", "up", "down")),
    "layer.post_attention_layernorm.weight",
)


@dataclass
class Opened:
    """said: the manifest, or an empty one. outer: the drafter's config.json, config: its decoder's settings."""

    said: dict[str, Any]
    drafter: dict[str, Held]
    outer: dict[str, Any]
    config: dict[str, Any]
    target: dict[str, Held]
    target_config: dict[str, Any]
    tokens: dict[int, str] | None
    own_tokens: dict[int, str] | None

    def get(self, section: str, key: str) -> Any:
        return self.said.get(section, {}).get(key)

    @property
    def eagle1(self) -> bool:
        fuse = self.drafter["fc.weight"][1][1] if "fc.weight" in self.drafter else 0
        wide = bool(fuse >= 3 * self.config["hidden_size"])
        return sum(sign in self.drafter for sign in EAGLE3) + wide < 2

    @property
    def vocabulary(self) -> int:
        return int(self.config["vocab_size"])

    @property
    def draft_size(self) -> int:
        return int(self.outer.get("draft_vocab_size", self.vocabulary))

    @property
    def reduced(self) -> bool:
        return self.draft_size < self.vocabulary

    @property
    def head(self) -> Held:
        return self.drafter.get("lm_head.weight") or self.target["lm_head.weight"]


class Gate(Opening, Declared, cost={"check_release": 5e-3}):
    """A right gate; every step is a method that a fault may override."""

    @classmethod
    def check_release(cls, case: ReleaseCase) -> list[Violation]:
        release = cls.read(case)
        return [
            cls.violation(int(name.removeprefix("clause_")), *said)
            for name in sorted(dir(cls))
            if name.startswith("clause_")
            for said in getattr(cls, name)(release)
        ]

    @classmethod
    def violation(cls, clause: int, field: str, message: str) -> Violation:
        return Violation(f"MANIFEST-{clause}", field, message)

    @classmethod
    def read(cls, case: ReleaseCase) -> Opened:
        said = {} if case.manifest is None else cls.document(case.manifest)
        outer = cls.config(case.drafter)
        drafter = cls.named(cls.tensors(case.drafter))
        target, target_config = cls.tensors(case.target), cls.config(case.target)
        config = outer.get("transformer_layer_config", outer)
        tokens, own = cls.tokens(case.target), cls.tokens(case.drafter)
        return Opened(said, drafter, outer, config, target, target_config, tokens, own)

    @classmethod
    def named(cls, tensors: Mapping[str, Held]) -> dict[str, Held]:
        found: dict[str, Held] = {}
        for name, held in tensors.items():
            one = name.removeprefix("model.").replace("midlayer.", "layer.").replace("layers.0.", "layer.")
            cls.not_twice(one, found)
            found[one] = held
        return found

    @classmethod
    def not_twice(cls, name: str, found: Mapping[str, Held]) -> None:
        demand(name not in found, f"{name} stands twice")

    @classmethod
    def differ(cls, field: str, said: Any, found: Any, wrong: str) -> Iterator[Said]:
        """A violation where both are said and differ."""
        if None not in (said, found) and said != found:
            yield field, f"said is {said}, found is {found}: {wrong}"

    # ---- digests

    @classmethod
    def tensor(cls, name: str, held: Held) -> bytes:
        dtype, shape, data = held
        words = [word.encode() for word in (name, dtype, ",".join(map(str, shape)))]
        return hashlib.sha256(b"".join(len(w).to_bytes(8, "little") + w for w in words) + data).digest()

    @classmethod
    def weights(cls, tensors: Mapping[str, Held]) -> str:
        return cls.sha(b"".join(cls.tensor(name, tensors[name]) for name in sorted(tensors)))

    @classmethod
    def sha(cls, content: bytes) -> str:
        return "sha256:" + hashlib.sha256(content).hexdigest()

    @classmethod
    def part(cls, held: Held) -> str:
        return "sha256:" + cls.tensor("", held).hex()

    @classmethod
    def settings(cls, config: Mapping[str, Any]) -> str:
        held = {key: value for key, value in config.items() if key not in NO_SETTINGS and value is not None}
        held = {key: cls.plain_number(value) for key, value in held.items()}
        return cls.sha(json.dumps(held, sort_keys=True, separators=(",", ":")).encode())

    @classmethod
    def plain_number(cls, value: Any) -> Any:
        return int(value) if isinstance(value, float) and value.is_integer() else value

    @classmethod
    def tokenizer(cls, tokens: Mapping[int, str]) -> str:
        words = [(i, tokens[i].encode()) for i in sorted(tokens)]
        return cls.sha(b"".join(i.to_bytes(8, "little") + len(w).to_bytes(8, "little") + w for i, w in words))

    @classmethod
    def clause_201(cls, r: Opened) -> Iterable[Said]:
        said = r.get("target", "weights")
        return cls.differ("target.weights", said, said and cls.weights(r.target), "trained for other weights")

    @classmethod
    def clause_203(cls, r: Opened) -> Iterable[Said]:
        said = r.get("target", "config")
        return cls.differ("target.config", said, cls.settings(r.target_config), "trained under other settings")

    @classmethod
    def clause_204(cls, r: Opened) -> Iterable[Said]:
        said = r.get("target", "tokenizer")
        return cls.differ("target.tokenizer", said, r.tokens and cls.tokenizer(r.tokens), "ids are other tokens")

    @classmethod
    def clause_205(cls, r: Opened) -> Iterable[Said]:
        for field, own, shared in (
            ("head", "lm_head.weight", "lm_head.weight"),
            ("embedding", "embed_tokens.weight", "model.embed_tokens.weight"),
        ):
            said = r.get(field, "digest")
            if said and (own in r.drafter or r.get(field, "identity") != "own"):
                held = r.drafter.get(own) or r.target[shared]
                yield from cls.differ(f"{field}.digest", said, cls.part(held), "the drafter runs with another one")

    @classmethod
    def clause_206(cls, r: Opened) -> Iterable[Said]:
        said, ids = r.get("map", "digest"), cls.good_ids(r)
        if said and ids is not None:
            yield from cls.differ("map.digest", said, cls.sha(ids.astype("<i8").tobytes()), "rows are other tokens")

    @classmethod
    def clause_207(cls, r: Opened) -> Iterable[Said]:
        said = r.get("features", "made_from")
        right = r.get("target", "weights") or (said and cls.weights(r.target))
        return cls.differ("features.made_from", said, right, "the features are of another revision")

    # ---- tensors

    @classmethod
    def needed(cls, r: Opened) -> set[str]:
        return {"fc.weight", *LAYER, *(() if r.eagle1 else EAGLE3[:3])}

    @classmethod
    def clause_301(cls, r: Opened) -> Iterable[Said]:
        for name in sorted(cls.needed(r) - set(r.drafter)):
            yield name, f"needed is {name}, found is nothing: it stays at random"

    @classmethod
    def clause_302(cls, r: Opened) -> Iterable[Said]:
        known = cls.needed(r) | {"fc.bias", "embed_tokens.weight", "lm_head.weight", "d2t", "t2d"}
        for name in sorted(set(r.drafter) - known):
            yield name, f"found is {name}, known is nothing: it is dropped"

    @classmethod
    def shapes(cls, r: Opened) -> dict[str, list[int]]:
        c = r.config
        d, inner = c["hidden_size"], c["intermediate_size"]
        queries, keys = c["num_attention_heads"] * c["head_dim"], c["num_key_value_heads"] * c["head_dim"]
        seen = d if r.eagle1 else 2 * d
        attention = {"q": [queries, seen], "k": [keys, seen], "v": [keys, seen], "o": [d, queries]}
        return {
            **{f"layer.self_attn.{name}_proj.weight": shape for name, shape in attention.items()},
            **{f"layer.mlp.{name}_proj.weight": [inner, d] for name in ("gate", "up")},
            "layer.mlp.down_proj.weight": [d, inner],
            "lm_head.weight": [r.draft_size, d],
            "embed_tokens.weight": [r.vocabulary, d],
            "norm.weight": [d],
        }

    @classmethod
    def clause_303(cls, r: Opened) -> Iterable[Said]:
        for name, shape in cls.shapes(r).items():
            if name in r.drafter:
                yield from cls.differ(name, shape, r.drafter[name][1], "it does not load")

    @classmethod
    def clause_304(cls, r: Opened) -> Iterable[Said]:
        width = r.target_config["hidden_size"]
        yield from cls.differ("target.hidden_size", r.get("target", "hidden_size"), width, "features do not fit")
        yield from cls.differ("hidden_size", r.config["hidden_size"], width, "features do not fit")

    @classmethod
    def clause_305(cls, r: Opened) -> Iterable[Said]:
        shown = "eagle1" if r.eagle1 else "eagle3"
        yield from cls.differ("variant", r.said.get("variant"), shown, "run as another variant")
        names = "".join(r.outer.get("architectures", [])).lower()
        named = "eagle3" if "eagle3" in names else "eagle1" if "eagle" in names else None
        yield from cls.differ("architectures", named, shown, "run as another variant")

    # ---- vocabulary

    @classmethod
    def clause_401(cls, r: Opened) -> Iterable[Said]:
        size = r.target_config["vocab_size"]
        yield from cls.differ("vocab_size", r.vocabulary, size, "embeddings do not fit")
        yield from cls.differ("target.vocabulary_size", r.get("target", "vocabulary_size"), size, "another vocabulary")

    @classmethod
    def clause_402(cls, r: Opened) -> Iterable[Said]:
        yield from cls.differ("map.size", r.get("map", "size"), r.draft_size, "the map is of another head")
        if "d2t" in r.drafter:
            yield from cls.differ("d2t", r.draft_size, r.drafter["d2t"][1][0], "draft ids lead nowhere")

    @classmethod
    def read_map(cls, r: Opened, convention: str) -> Any:
        """Absolute ids under a convention; None without a map."""
        if "d2t" not in r.drafter:
            return None
        written = np.frombuffer(r.drafter["d2t"][2], dtype="<i8")
        return written + np.arange(len(written)) if convention == "offset" else written

    @classmethod
    def marked(cls, r: Opened) -> Any:
        return np.flatnonzero(np.frombuffer(r.drafter["t2d"][2], dtype=np.uint8)) if "t2d" in r.drafter else None

    @classmethod
    def inside_and_distinct(cls, r: Opened, ids: Any) -> bool:
        return bool(ids.min() >= 0 and ids.max() < r.vocabulary and len(set(ids.tolist())) == len(ids))

    @classmethod
    def convention(cls, r: Opened) -> str:
        return str(r.get("map", "convention") or "offset")

    @classmethod
    def misread(cls, r: Opened) -> bool:
        """Whether the other convention alone gives the tokens that `t2d` marks, or without it, distinct tokens."""
        mine = cls.convention(r)
        return not cls.plausible(r, mine) and cls.plausible(r, "absolute" if mine == "offset" else "offset")

    @classmethod
    def plausible(cls, r: Opened, convention: str) -> bool:
        ids, marked, digest = cls.read_map(r, convention), cls.marked(r), r.get("map", "digest")
        if ids is None or not cls.inside_and_distinct(r, ids):
            return ids is None
        if marked is not None and sorted(ids.tolist()) != marked.tolist():
            return False
        return not digest or digest == cls.sha(ids.astype("<i8").tobytes())

    @classmethod
    def good_ids(cls, r: Opened) -> Any:
        """The ids as they are said, where they are a map at all."""
        ids = cls.read_map(r, cls.convention(r))
        return None if ids is None or cls.misread(r) or not cls.inside_and_distinct(r, ids) else ids

    @classmethod
    def clause_403(cls, r: Opened) -> Iterable[Said]:
        ids = cls.read_map(r, cls.convention(r))
        if ids is not None and not cls.misread(r) and not cls.inside_and_distinct(r, ids):
            yield "d2t", f"ids are {ids.tolist()}, the vocabulary is {r.vocabulary}: no map of distinct tokens"

    @classmethod
    def clause_404(cls, r: Opened) -> Iterable[Said]:
        ids, marked = cls.good_ids(r), cls.marked(r)
        if ids is not None and marked is not None and set(ids) == set(marked) and ids.tolist() != marked.tolist():
            yield "d2t", f"ids are {ids.tolist()}, marked are {marked.tolist()}: rows are exchanged"

    @classmethod
    def clause_405(cls, r: Opened) -> Iterable[Said]:
        ids, marked = cls.good_ids(r), cls.marked(r)
        if ids is not None and marked is not None and set(ids) != set(marked):
            yield "t2d", f"ids are {ids.tolist()}, marked are {marked.tolist()}: another law was learned"

    @classmethod
    def clause_406(cls, r: Opened) -> Iterable[Said]:
        if cls.misread(r):
            yield "map.convention", f"said is {cls.convention(r)}, only the other reading fits: drafts are other tokens"

    @classmethod
    def clause_407(cls, r: Opened) -> Iterable[Said]:
        if r.reduced and "lm_head.weight" not in r.drafter:
            yield "lm_head.weight", f"{r.draft_size} of {r.vocabulary} tokens and no head: it stays at random"

    @classmethod
    def clause_408(cls, r: Opened) -> Iterable[Said]:
        if r.reduced and "d2t" not in r.drafter:
            yield "d2t", f"{r.draft_size} of {r.vocabulary} tokens and no map: the first ids are taken"

    @classmethod
    def clause_409(cls, r: Opened) -> Iterable[Said]:
        for field, own, shared in (
            ("head", "lm_head.weight", "lm_head.weight"),
            ("embedding", "embed_tokens.weight", "model.embed_tokens.weight"),
        ):
            said, there = r.get(field, "identity"), own in r.drafter
            if said == "own" and not there and not (field == "head" and r.reduced):
                yield f"{field}.identity", "said is own, found is nothing: the target's takes its place"
            if said == "target" and there and r.drafter[own] != r.target[shared]:
                yield f"{field}.identity", "said is target, found is another one: readers differ in which they take"

    @classmethod
    def clause_410(cls, r: Opened) -> Iterable[Said]:
        if r.own_tokens and r.tokens and r.own_tokens != r.tokens:
            yield "tokenizer", "said are the drafter's tokens, found are the target's: ids are other words"

    # ---- addresses, positions and numbers: `gating`
