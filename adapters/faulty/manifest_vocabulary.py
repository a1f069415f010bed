"""Gates of releases with one fault each: sizes, draft maps, heads and tokenizers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from adapters.faulty.gating import WholeGate
from adapters.faulty.releasing import Opened, Said

# ---- vocabulary


class MoreTokensAreNoMatter(WholeGate):
    """Passes a target whose vocabulary grew."""

    refutes = "MANIFEST-401"

    @classmethod
    def clause_401(cls, r: Opened) -> Iterable[Said]:
        return () if r.target_config["vocab_size"] >= r.vocabulary else super().clause_401(r)


class DraftSizeByTheHead(WholeGate):
    """Counts the head's rows, and not the map's entries."""

    refutes = "MANIFEST-402"

    @classmethod
    def clause_402(cls, r: Opened) -> Iterable[Said]:
        return [said for said in super().clause_402(r) if said[0] != "d2t"]


class MapsAreTrusted(WholeGate):
    """Looks at the last token of a map, and for no twins."""

    refutes = "MANIFEST-403"

    @classmethod
    def clause_403(cls, r: Opened) -> Iterable[Said]:
        ids = cls.read_map(r, cls.convention(r))
        return super().clause_403(r) if ids is not None and ids.max() >= r.vocabulary else ()


class OneBeyondTheVocabulary(WholeGate):
    """Lets V itself pass for a token."""

    refutes = "MANIFEST-403"

    @classmethod
    def inside_and_distinct(cls, r: Opened, ids: Any) -> bool:
        return bool(ids.min() >= 0 and ids.max() <= r.vocabulary and len(set(ids.tolist())) == len(ids))

    @classmethod
    def clause_405(cls, r: Opened) -> Iterable[Said]:
        ids = cls.good_ids(r)
        return () if ids is not None and ids.max() >= r.vocabulary else super().clause_405(r)


class MapsAsSets(WholeGate):
    """Compares which tokens `d2t` and `t2d` hold, and not their order."""

    refutes = "MANIFEST-404"

    @classmethod
    def clause_404(cls, r: Opened) -> Iterable[Said]:
        return ()


class CountsMarks(WholeGate):
    """Counts what `t2d` marks."""

    refutes = "MANIFEST-405"

    @classmethod
    def clause_405(cls, r: Opened) -> Iterable[Said]:
        ids, marked = cls.good_ids(r), cls.marked(r)
        if ids is not None and marked is not None and len(ids) != len(marked):
            yield "t2d", f"ids are {len(ids)}, marked are {len(marked)}: another law was learned"


class MarksOfMappedTokens(WholeGate):
    """Asks whether each mapped token is marked, and not whether others are."""

    refutes = "MANIFEST-405"

    @classmethod
    def clause_405(cls, r: Opened) -> Iterable[Said]:
        ids, marked = cls.good_ids(r), cls.marked(r)
        if ids is not None and marked is not None and not set(ids) <= set(marked):
            yield "t2d", f"ids are {ids.tolist()}, marked are {marked.tolist()}: another law was learned"


class EveryMapIsOffsets(WholeGate):
    """Reads offsets, whatever the manifest says and the file holds."""

    refutes = "MANIFEST-406"

    @classmethod
    def convention(cls, r: Opened) -> str:
        return "offset"

    @classmethod
    def clause_406(cls, r: Opened) -> Iterable[Said]:
        return ()


class GuessesTheConvention(WholeGate):
    """Takes the reading that fits, and tells nobody."""

    refutes = "MANIFEST-406"

    @classmethod
    def clause_406(cls, r: Opened) -> Iterable[Said]:
        return ()


class BorrowsAnyHead(WholeGate):
    """Borrows the target's head, also where its rows are other tokens (sgl-project/sglang#27908)."""

    refutes = "MANIFEST-407"

    @classmethod
    def clause_407(cls, r: Opened) -> Iterable[Said]:
        return ()


class FirstIdsWithoutAMap(WholeGate):
    """Takes the first ids where there is no map (NVIDIA-NeMo/Automodel#2447)."""

    refutes = "MANIFEST-408"

    @classmethod
    def clause_408(cls, r: Opened) -> Iterable[Said]:
        return ()


class OwnPartsAreTrusted(WholeGate):
    """Does not look whether what is called own is there."""

    refutes = "MANIFEST-409"

    @classmethod
    def clause_409(cls, r: Opened) -> Iterable[Said]:
        return [said for said in super().clause_409(r) if "said is own" not in said[1]]


class SharedPartsAreTrusted(WholeGate):
    """Does not compare what is called shared."""

    refutes = "MANIFEST-409"

    @classmethod
    def clause_409(cls, r: Opened) -> Iterable[Said]:
        return [said for said in super().clause_409(r) if "said is target" not in said[1]]


class OwnTokenizerBySize(WholeGate):
    """Takes a tokenizer of as many tokens for the same one (ggml-org/llama.cpp#3812)."""

    refutes = "MANIFEST-410"

    @classmethod
    def clause_410(cls, r: Opened) -> Iterable[Said]:
        return () if len(r.own_tokens or ()) == len(r.tokens or ()) else super().clause_410(r)
