"""Gates of releases with one fault each: layer addresses, positions, numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from adapters.faulty.gating import WholeGate
from adapters.faulty.releasing import BEYOND, NAMES, Opened, Said

# ---- addresses


class TakesTheDefault(WholeGate):
    """Feeds the usual layers where none are named (lightseekorg/tokenspeed#526)."""

    refutes = "MANIFEST-501"

    @classmethod
    def clause_501(cls, r: Opened) -> Iterable[Said]:
        return () if cls.written(r) is None else super().clause_501(r)


class ReadsAsOneEngine(WholeGate):
    """Takes unexplained addresses for the layers that are left (sgl-project/sglang#25454)."""

    refutes = "MANIFEST-501"

    @classmethod
    def clause_501(cls, r: Opened) -> Iterable[Said]:
        return super().clause_501(r) if cls.written(r) is None else ()


class CountsTheEmbeddingAsALayer(WholeGate):
    """Lets −1, the embedding, pass for a layer's output."""

    refutes = "MANIFEST-502"

    @classmethod
    def clause_502(cls, r: Opened) -> Iterable[Said]:
        return [said for said in super().clause_502(r) if "said is -1," not in said[1]]


class OneLayerTooMany(WholeGate):
    """Lets the number of layers itself pass for an address."""

    refutes = "MANIFEST-502"

    @classmethod
    def clause_502(cls, r: Opened) -> Iterable[Said]:
        count = r.target_config["num_hidden_layers"]
        return [said for said in super().clause_502(r) if f"said is {count}," not in said[1]]


class NeighboursMayBeAlike(WholeGate):
    """Compares the first address with the last."""

    refutes = "MANIFEST-503"

    @classmethod
    def clause_503(cls, r: Opened) -> Iterable[Said]:
        layers = cls.layers(r) or [0, 1]
        return super().clause_503(r) if layers[0] == layers[-1] else ()


class TheManifestWins(WholeGate):
    """Does not compare the manifest's addresses with those of the configuration."""

    refutes = "MANIFEST-504"

    @classmethod
    def clause_504(cls, r: Opened) -> Iterable[Said]:
        return ()


class LayersAsASet(WholeGate):
    """Compares which layers there are, and not in which columns they stand."""

    refutes = "MANIFEST-504"

    @classmethod
    def clause_504(cls, r: Opened) -> Iterable[Said]:
        said, left = r.get("features", "layers"), cls.left(r)
        return () if said and left and sorted(said) == sorted(left) else super().clause_504(r)


class OffByOneIsNoMatter(WholeGate):
    """Takes either reading of addresses for right, also where the layout says which (sgl-project/sglang#25454)."""

    refutes = "MANIFEST-504"

    @classmethod
    def clause_504(cls, r: Opened) -> Iterable[Said]:
        said, written = r.get("features", "layers"), cls.written(r)
        either = [] if written is None else [written, [i - 1 for i in written], [i + 1 for i in written]]
        return () if said in either else super().clause_504(r)


class ThreeIsEnough(WholeGate):
    """Asks for three layers at least, and not for as many as are fused."""

    refutes = "MANIFEST-505"

    @classmethod
    def clause_505(cls, r: Opened) -> Iterable[Said]:
        return super().clause_505(r) if len(cls.layers(r) or [0] * 3) < 3 else ()


class EitherSideOfTheNorm(WholeGate):
    """Does not ask on which side of the final norm the feature is taken."""

    refutes = "MANIFEST-506"

    @classmethod
    def clause_506(cls, r: Opened) -> Iterable[Said]:
        return [said for said in super().clause_506(r) if said[0] != "features.final_norm"]


class NormFlagUnread(WholeGate):
    """Does not read the flags of norms before the fusion (sgl-project/sglang#32334)."""

    refutes = "MANIFEST-506"

    @classmethod
    def clause_506(cls, r: Opened) -> Iterable[Said]:
        return [said for said in super().clause_506(r) if said[0] != "features.input_norm"]


class AnyStateFedBack(WholeGate):
    """Does not ask which state is fed back."""

    refutes = "MANIFEST-506"

    @classmethod
    def clause_506(cls, r: Opened) -> Iterable[Said]:
        return [said for said in super().clause_506(r) if said[0] != "conventions.fed_back"]


# ---- positions


class ContextOfTheManifest(WholeGate):
    """Asks the manifest how far the drafter reaches, and not its configuration."""

    refutes = "MANIFEST-601"

    @classmethod
    def longest(cls, r: Opened) -> list[int]:
        return super().longest(r)[:1] if r.get("positions", "maximum") else []


class OnePositionForgiven(WholeGate):
    """Passes a drafter that is one position short."""

    refutes = "MANIFEST-601"

    @classmethod
    def longest(cls, r: Opened) -> list[int]:
        return [size + 1 for size in super().longest(r)]


class ThetaAlone(WholeGate):
    """Compares the rotary base, and not how it is scaled or laid out (NVIDIA/TensorRT-LLM#19036)."""

    refutes = "MANIFEST-602"

    @classmethod
    def rotary(cls, r: Opened) -> dict[str, Any]:
        return {"rope_theta": super().rotary(r)["rope_theta"]}


class ThetaToThreeDigits(WholeGate):
    """Takes rotary bases that agree in three digits for equal."""

    refutes = "MANIFEST-602"

    @classmethod
    def rotary(cls, r: Opened) -> dict[str, Any]:
        found, said = super().rotary(r), r.get("positions", "rope_theta")
        alike = said is not None and f"{found['rope_theta']:.3g}" == f"{said:.3g}"
        return {**found, "rope_theta": said} if alike else found


# ---- numbers


class NumpysDtypesAlone(WholeGate):
    """Looks for NaN in the dtypes that NumPy has, and bfloat16 is none."""

    refutes = "MANIFEST-701"

    @classmethod
    def clause_701(cls, r: Opened) -> Iterable[Said]:
        return [said for said in super().clause_701(r) if r.drafter[said[0]][0] != "BF16"]


class InfinityIsNoNaN(WholeGate):
    """Looks for NaN alone."""

    refutes = "MANIFEST-701"

    @classmethod
    def are_finite(cls, values: Any) -> bool:
        return not np.isnan(values).any()


class MatricesAlone(WholeGate):
    """Looks for NaN in matrices, and not in norms."""

    refutes = "MANIFEST-701"

    @classmethod
    def clause_701(cls, r: Opened) -> Iterable[Said]:
        return [said for said in super().clause_701(r) if len(r.drafter[said[0]][1]) > 1]


class LargestPositiveWeight(WholeGate):
    """Takes the largest weight for the one of largest magnitude."""

    refutes = "MANIFEST-702"

    @classmethod
    def largest(cls, values: Any) -> float:
        return float(values.max(initial=0))


class ServedAsStored(WholeGate):
    """Judges weights in the dtype in which they are stored (vllm-project/vllm#55250)."""

    refutes = "MANIFEST-702"

    @classmethod
    def clause_702(cls, r: Opened) -> Iterable[Said]:
        for name, values in cls.floats(r).items():
            if cls.largest(values[np.isfinite(values)]) >= BEYOND[NAMES[r.drafter[name][0]]]:
                yield name, "found is a number beyond its own dtype: the cast makes it infinite"


class WeightsAreLogits(WholeGate):
    """Takes the largest weight of the head for the largest logit."""

    refutes = "MANIFEST-703"

    @classmethod
    def reached(cls, reach: Any) -> float:
        return super().reached(reach) / 8.0


class NormsHaveNoGain(WholeGate):
    """Takes the final norm's weight for one."""

    refutes = "MANIFEST-703"

    @classmethod
    def gain(cls, r: Opened) -> Any:
        return 1.0


class BorrowedHeadsAreFine(WholeGate):
    """Does not look at logits of the target's head."""

    refutes = "MANIFEST-703"

    @classmethod
    def clause_703(cls, r: Opened) -> Iterable[Said]:
        return super().clause_703(r) if "lm_head.weight" in r.drafter else ()


class AnyStoredDtype(WholeGate):
    """Does not ask in which dtype the weights are stored."""

    refutes = "MANIFEST-704"

    @classmethod
    def clause_704(cls, r: Opened) -> Iterable[Said]:
        return ()
