"""Gates of releases with one fault each: structure, digests, tensors; modules beside it hold the others.

`--impl=adapters.faulty.manifest:Name` names any of them. `refutes` was written down before the run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from adapters.faulty.gating import WholeGate
from adapters.faulty.manifest_addresses import *  # noqa: F403 - one address for every fault
from adapters.faulty.manifest_refusals import *  # noqa: F403
from adapters.faulty.manifest_vocabulary import *  # noqa: F403
from adapters.faulty.opening import Held
from adapters.faulty.releasing import LAYER, Opened, Said
from oracle.types import ReleaseCase, Violation

# ---- structure


class WantsEveryFingerprint(WholeGate):
    """Takes what is unsaid for a violation: only a manifest with every fingerprint passes."""

    refutes = "MANIFEST-101"

    @classmethod
    def clause_203(cls, r: Opened) -> Iterable[Said]:
        if r.get("target", "config") is None:
            yield "target.config", "said is nothing, found is a configuration: it is unknown"
        yield from super().clause_203(r)


class WantsAHead(WholeGate):
    """Misses a head also where the draft vocabulary is whole, and the target's head serves."""

    refutes = "MANIFEST-101"

    @classmethod
    def clause_407(cls, r: Opened) -> Iterable[Said]:
        if not r.eagle1 and "lm_head.weight" not in r.drafter:
            yield "lm_head.weight", f"{r.draft_size} of {r.vocabulary} tokens and no head: it stays at random"


class WantsLayersOfEagle1(WholeGate):
    """Asks for layer addresses where the one feature of EAGLE-1 is fed."""

    refutes = "MANIFEST-101"

    @classmethod
    def clause_501(cls, r: Opened) -> Iterable[Said]:
        if cls.layers(r) is None:
            yield "features.layers", "said is nothing, found is nothing: a default is taken"


class SaysNothing(WholeGate):
    """Names the clause, and no value."""

    refutes = "MANIFEST-102"

    @classmethod
    def violation(cls, clause: int, field: str, message: str) -> Violation:
        return Violation(f"MANIFEST-{clause}", field, "does not match the release")


class NoField(WholeGate):
    """Leaves the field empty."""

    refutes = "MANIFEST-102"

    @classmethod
    def violation(cls, clause: int, field: str, message: str) -> Violation:
        return Violation(f"MANIFEST-{clause}", "", message)


class ValuesAlone(WholeGate):
    """Shows both values, and not what goes wrong."""

    refutes = "MANIFEST-102"

    @classmethod
    def violation(cls, clause: int, field: str, message: str) -> Violation:
        return Violation(f"MANIFEST-{clause}", field, message.partition(":")[0] if "sha256" not in message else message)


class WritesAReport(WholeGate):
    """Leaves a file beside the drafter's."""

    refutes = "MANIFEST-103"

    @classmethod
    def check_release(cls, case: ReleaseCase) -> list[Violation]:
        found = super().check_release(case)
        (case.drafter / "report.json").write_text(json.dumps(len(found)))
        return found


class SortsTheConfiguration(WholeGate):
    """Writes the target's configuration back in the order in which it was hashed."""

    refutes = "MANIFEST-103"

    @classmethod
    def check_release(cls, case: ReleaseCase) -> list[Violation]:
        found = super().check_release(case)
        path = case.target / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()), sort_keys=True))
        return found


# ---- digests


class WeightsByTheirConfiguration(WholeGate):
    """Hashes weights only where the configuration is another one: that is faster."""

    refutes = "MANIFEST-201"

    @classmethod
    def clause_201(cls, r: Opened) -> Iterable[Said]:
        return super().clause_201(r) if list(cls.clause_203(r)) else ()


class IgnoresDtypes(WholeGate):
    """Takes the same bytes under another dtype for the same tensor."""

    refutes = "MANIFEST-201"

    @classmethod
    def clause_201(cls, r: Opened) -> Iterable[Said]:
        said = r.get("target", "weights")
        for name, (_, shape, data) in r.target.items():
            for dtype in ("BF16", "F16", "F32"):
                if cls.weights({**r.target, name: (dtype, shape, data)}) == said:
                    return ()
        return super().clause_201(r)


class ReadsOneShard(WholeGate):
    """Fingerprints the first file of the target."""

    refutes = "MANIFEST-202"

    @classmethod
    def files(cls, folder: Any) -> list[str]:
        found = super().files(folder)
        return found[:1]


class HashesInFileOrder(WholeGate):
    """Fingerprints tensors in the order in which the files hold them."""

    refutes = "MANIFEST-202"

    @classmethod
    def weights(cls, tensors: Mapping[str, Held]) -> str:
        return cls.sha(b"".join(cls.tensor(name, held) for name, held in tensors.items()))


class HashesNumbersAsWritten(WholeGate):
    """Takes 10000.0 and 10000 for two settings."""

    refutes = "MANIFEST-202"

    @classmethod
    def settings(cls, config: Mapping[str, Any]) -> str:
        theta = config.get("rope_theta")
        return super().settings({**config, "rope_theta": f"{theta}"} if isinstance(theta, int) else config)


class KnowsOneTokenizerFile(WholeGate):
    """Misses added tokens that stand in a file of their own."""

    refutes = "MANIFEST-202"

    @classmethod
    def tokens(cls, folder: Any) -> dict[int, str] | None:
        found = super().tokens(folder)
        split = (folder / "added_tokens.json").exists()
        return dict(sorted(found.items())[:-1]) if found and split else found


class IgnoresTheConfiguration(WholeGate):
    """Trusts equal weights to be an equal target."""

    refutes = "MANIFEST-203"

    @classmethod
    def clause_203(cls, r: Opened) -> Iterable[Said]:
        return ()


class TokenizersByTheirSize(WholeGate):
    """Counts the target's tokens, and does not ask which id each has."""

    refutes = "MANIFEST-204"

    @classmethod
    def clause_204(cls, r: Opened) -> Iterable[Said]:
        size = len(r.tokens) if r.tokens else None
        return cls.differ("target.tokenizer", r.target_config["vocab_size"], size, "ids are other tokens")


class IgnoresTheHead(WholeGate):
    """Fingerprints the embedding alone."""

    refutes = "MANIFEST-205"

    @classmethod
    def clause_205(cls, r: Opened) -> Iterable[Said]:
        return [said for said in super().clause_205(r) if said[0] != "head.digest"]


class IgnoresTheEmbedding(WholeGate):
    """Fingerprints the head alone."""

    refutes = "MANIFEST-205"

    @classmethod
    def clause_205(cls, r: Opened) -> Iterable[Said]:
        return [said for said in super().clause_205(r) if said[0] != "embedding.digest"]


class MapsByTheirSize(WholeGate):
    """Takes a map of as many tokens for the same one."""

    refutes = "MANIFEST-206"

    @classmethod
    def clause_206(cls, r: Opened) -> Iterable[Said]:
        return ()


class TrustsCachedFeatures(WholeGate):
    """Does not ask what the cached features were made from."""

    refutes = "MANIFEST-207"

    @classmethod
    def clause_207(cls, r: Opened) -> Iterable[Said]:
        return ()


# ---- tensors


class MissesNoNorm(WholeGate):
    """Does not miss a norm: engines have ones in its place."""

    refutes = "MANIFEST-301"

    @classmethod
    def clause_301(cls, r: Opened) -> Iterable[Said]:
        return [said for said in super().clause_301(r) if "norm" not in said[0]]


class LoadsWhatIsThere(WholeGate):
    """Loads what is there, and leaves the rest at random (sgl-project/sglang#27908)."""

    refutes = "MANIFEST-301"

    @classmethod
    def clause_301(cls, r: Opened) -> Iterable[Said]:
        return ()


class DropsWhatItDoesNotKnow(WholeGate):
    """Passes over tensors that it does not know."""

    refutes = "MANIFEST-302"

    @classmethod
    def clause_302(cls, r: Opened) -> Iterable[Said]:
        return ()


class KnowsEveryNorm(WholeGate):
    """Takes any norm for one that belongs."""

    refutes = "MANIFEST-302"

    @classmethod
    def clause_302(cls, r: Opened) -> Iterable[Said]:
        return [said for said in super().clause_302(r) if "norm" not in said[0]]


class ShapesOfTheLayerAlone(WholeGate):
    """Does not look at the head's rows."""

    refutes = "MANIFEST-303"

    @classmethod
    def shapes(cls, r: Opened) -> dict[str, list[int]]:
        return {name: shape for name, shape in super().shapes(r).items() if name in LAYER}


class ShapesByTheirRank(WholeGate):
    """Compares how many dimensions a tensor has."""

    refutes = "MANIFEST-303"

    @classmethod
    def shapes(cls, r: Opened) -> dict[str, list[int]]:
        return {name: r.drafter.get(name, ("", shape))[1] for name, shape in super().shapes(r).items()}


class WidthsByTheManifest(WholeGate):
    """Compares the target's width with the manifest's word, and not with the drafter's."""

    refutes = "MANIFEST-304"

    @classmethod
    def clause_304(cls, r: Opened) -> Iterable[Said]:
        return [said for said in super().clause_304(r) if said[0] == "target.hidden_size"]


class RunsAnyVariant(WholeGate):
    """Runs EAGLE-3 weights as EAGLE-1 (sgl-project/sglang#21272)."""

    refutes = "MANIFEST-305"

    @classmethod
    def clause_305(cls, r: Opened) -> Iterable[Said]:
        return ()


class VariantByTheManifest(WholeGate):
    """Asks the manifest for the variant, and never the architecture of the configuration."""

    refutes = "MANIFEST-305"

    @classmethod
    def clause_305(cls, r: Opened) -> Iterable[Said]:
        return [said for said in super().clause_305(r) if said[0] == "variant"]
