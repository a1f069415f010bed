"""The rest of a right gate: layer addresses, positions, numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from adapters.faulty.releasing import BEYOND, IDS, NAMES, Gate, Opened, Said


class WholeGate(Gate):
    """A right gate of every clause."""

    # ---- addresses

    @classmethod
    def written(cls, r: Opened) -> list[int] | None:
        """The addresses of the configuration, as it writes them."""
        found: list[int] | None = r.outer.get(IDS) or r.outer.get("eagle_config", {}).get(IDS)
        return found

    @classmethod
    def left(cls, r: Opened) -> list[int] | None:
        """The layers that are left, by the configuration; None where it does not say."""
        written = cls.written(r)
        if written is None or IDS in r.outer:
            return None if written is None else [i - 1 for i in written]
        known = "next_layer_regular" in r.outer["eagle_config"] or "use_aux_hidden_state" in r.outer["eagle_config"]
        return written if known else None

    @classmethod
    def layers(cls, r: Opened) -> list[int] | None:
        return r.get("features", "layers") or cls.left(r)

    @classmethod
    def clause_501(cls, r: Opened) -> Iterable[Said]:
        if not r.eagle1 and cls.layers(r) is None:
            yield "features.layers", f"said is nothing, found is {cls.written(r)}: a default is taken"

    @classmethod
    def clause_502(cls, r: Opened) -> Iterable[Said]:
        count = r.target_config["num_hidden_layers"]
        for layer in cls.layers(r) or []:
            if not 0 <= layer < count:
                yield "features.layers", f"said is {layer}, the target has {count} layers: nothing is captured"

    @classmethod
    def clause_503(cls, r: Opened) -> Iterable[Said]:
        layers = cls.layers(r) or []
        if len(set(layers)) < len(layers):
            yield "features.layers", f"said is {layers}, distinct are {len(set(layers))}: one is captured once"

    @classmethod
    def clause_504(cls, r: Opened) -> Iterable[Said]:
        said, written = r.get("features", "layers"), cls.written(r)
        if said and written:
            left = cls.left(r)
            fitting = [written, [i - 1 for i in written]] if left is None else [left]
            if said not in fitting:
                yield "features.layers", f"said is {said}, the configuration has {written}: other layers are fed"

    @classmethod
    def clause_505(cls, r: Opened) -> Iterable[Said]:
        layers = cls.layers(r)
        if layers and not r.eagle1 and "fc.weight" in r.drafter:
            fused = r.drafter["fc.weight"][1][1] // r.config["hidden_size"]
            yield from cls.differ("features.layers", len(layers), fused, "the fused input has another width")

    @classmethod
    def clause_506(cls, r: Opened) -> Iterable[Said]:
        shown = "after" if r.eagle1 else "before"
        yield from cls.differ("features.final_norm", r.get("features", "final_norm"), shown, "another feature is fed")
        flags = {"norm_before_fc": "whole", "fc_norm": "each"}
        if known := [flag for flag in flags if flag in r.outer]:
            norm = next((flags[flag] for flag in known if r.outer[flag]), "none")
            yield from cls.differ("features.input_norm", r.get("features", "input_norm"), norm, "a norm is left out")
        for key, flag in (("residual", "norm_before_residual"), ("fed_back", "norm_output")):
            state = {True: "normed_state", False: "state", None: None}[r.outer.get(flag)]
            yield from cls.differ(f"conventions.{key}", r.get("conventions", key), state, "another state is taken")

    # ---- positions

    @classmethod
    def longest(cls, r: Opened) -> list[int]:
        """How many positions each of the documents says that the drafter has."""
        said = [r.get("positions", "maximum"), r.config.get("max_position_embeddings")]
        return [size for size in said if size is not None]

    @classmethod
    def clause_601(cls, r: Opened) -> Iterable[Said]:
        target = r.target_config["max_position_embeddings"]
        for own in cls.longest(r):
            if own < target:
                yield "positions.maximum", f"the drafter has {own}, the target {target}: it drafts past its tables"

    @classmethod
    def rotary(cls, r: Opened) -> dict[str, Any]:
        """The rotary settings of the configuration."""
        scaling = r.config.get("rope_scaling") or {}
        return {
            "rope_theta": r.config["rope_theta"],
            "rope_type": scaling.get("rope_type", "default"),
            "rope_factor": scaling.get("factor"),
            "rope_layout": "half",
        }

    @classmethod
    def clause_602(cls, r: Opened) -> Iterable[Said]:
        for key, found in cls.rotary(r).items():
            yield from cls.differ(f"positions.{key}", r.get("positions", key), found, "queries turn otherwise")

    # ---- numbers

    @classmethod
    def numbers(cls, held: Any) -> Any:
        """The numbers of a tensor; None where they are no floating-point ones."""
        dtype, _, data = held
        if dtype == "BF16":
            return (np.frombuffer(data, dtype="<u2").astype("<u4") << 16).view("<f4").astype(np.float64)
        kinds = {"F16": "<f2", "F32": "<f4", "F64": "<f8"}
        return np.frombuffer(data, dtype=kinds[dtype]).astype(np.float64) if dtype in kinds else None

    @classmethod
    def floats(cls, r: Opened) -> dict[str, Any]:
        found = {name: cls.numbers(held) for name, held in r.drafter.items()}
        return {name: values for name, values in found.items() if values is not None}

    @classmethod
    def served(cls, r: Opened) -> str:
        return str(r.get("dtype", "compute") or r.config["torch_dtype"])

    @classmethod
    def clause_701(cls, r: Opened) -> Iterable[Said]:
        for name, values in cls.floats(r).items():
            if not cls.are_finite(values):
                yield name, "found is NaN or infinity, finite is right: every logit is NaN"

    @classmethod
    def are_finite(cls, values: Any) -> bool:
        return bool(np.isfinite(values).all())

    @classmethod
    def clause_702(cls, r: Opened) -> Iterable[Said]:
        served = cls.served(r)
        for name, values in cls.floats(r).items():
            largest = cls.largest(values[np.isfinite(values)])
            if NAMES[r.drafter[name][0]] != served and largest >= BEYOND[served]:
                yield name, f"found is {largest}, {served} ends below: the cast makes it infinite"

    @classmethod
    def largest(cls, values: Any) -> float:
        return float(np.abs(values).max(initial=0))

    @classmethod
    def clause_703(cls, r: Opened) -> Iterable[Said]:
        if r.eagle1 or "norm.weight" not in r.drafter:
            return
        hidden, gain = r.config["hidden_size"], cls.gain(r)
        rows = cls.numbers(cls.head_of(r)).reshape(r.head[1])
        if rows.shape[1] != hidden:
            return
        reach = np.sqrt(hidden * np.sum((rows * gain) ** 2, axis=1))
        if cls.reached(reach) >= BEYOND[cls.served(r)]:
            yield "lm_head.weight", f"a logit reaches {reach.max()}, {cls.served(r)} ends below: it is infinite"

    @classmethod
    def head_of(cls, r: Opened) -> Any:
        return r.head

    @classmethod
    def gain(cls, r: Opened) -> Any:
        return cls.numbers(r.drafter["norm.weight"])

    @classmethod
    def reached(cls, reach: Any) -> float:
        return float(reach[np.isfinite(reach)].max(initial=0))

    @classmethod
    def clause_704(cls, r: Opened) -> Iterable[Said]:
        said = r.get("dtype", "weights")
        held = sorted({NAMES[dtype] for dtype, _, _ in r.drafter.values() if dtype in NAMES} - {said})
        if said and held:
            yield "dtype.weights", f"said is {said}, found is {held[0]}: the weights were cast"
