"""Publications with one fault each: the frontier, and where a request ends."""

from __future__ import annotations

from adapters.faulty.publishing import PAD, ROOT, Publisher, Round

# ---- the frontier


class LastAcceptedIsPending(Publisher):
    """Leaves the last accepted token pending."""

    refutes = "PUBLISH-501"

    @classmethod
    def pending(cls, found: Round, survives: bool, reason: str | None) -> int | None:
        pending = super().pending(found, survives, reason)
        return cls.path_tokens(found)[-1] if survives and found.path else pending


class SeedOfTheRoot(Publisher):
    """Drafts from the feature of the root, whatever was accepted."""

    refutes = "PUBLISH-502"

    @classmethod
    def seed(cls, found: Round, features: list[float], survives: bool) -> float | None:
        return features[len(found.case.state.kv) - (not found.rooted)] if survives else None


class SeedOfTheLastRow(Publisher):
    """Drafts from the last feature of the verification, accepted or not (ggml-org/llama.cpp#22881)."""

    refutes = "PUBLISH-502"

    @classmethod
    def seed(cls, found: Round, features: list[float], survives: bool) -> float | None:
        return found.features[-1] if survives and found.path else super().seed(found, features, survives)


class NoSeedWithoutDrafts(Publisher):
    """Has nothing to draft from where no draft was accepted."""

    refutes = "PUBLISH-503"

    @classmethod
    def seed(cls, found: Round, features: list[float], survives: bool) -> float | None:
        return super().seed(found, features, survives and bool(found.path))


class SeedOfNoRoot(Publisher):
    """Looks for a root's feature where no root was verified, and drafts from zero."""

    refutes = "PUBLISH-503"

    @classmethod
    def seed(cls, found: Round, features: list[float], survives: bool) -> float | None:
        nothing = survives and not found.path and not found.rooted
        return 0.0 if nothing else super().seed(found, features, survives)


class FullAcceptanceEnds(Publisher):
    """Takes a round whose drafts are all accepted for the last one."""

    refutes = "PUBLISH-504"

    @classmethod
    def cut(cls, found: Round, new: list[int]) -> tuple[int, str | None]:
        size, reason = super().cut(found, new)
        drafted = [node for node in found.nodes if node not in (ROOT, PAD)]
        return size, reason or ("length" if drafted and len(found.path) == len(drafted) else None)


# ---- stop tokens


class StopInTheLastPlace(Publisher):
    """Looks for a stop token in the last place alone (huggingface/transformers#47912)."""

    refutes = "PUBLISH-601"

    @classmethod
    def cut(cls, found: Round, new: list[int]) -> tuple[int, str | None]:
        size = len(new) if found.room is None else min(len(new), found.room)
        if new[size - 1] in found.stops:
            return size, "stop"
        return size, "length" if size == found.room else None


class OutputWithoutTheStop(Publisher):
    """Cuts a stop token of the path away with what comes after it."""

    refutes = "PUBLISH-601"

    @classmethod
    def output(cls, found: Round, tokens: list[int], survives: bool) -> list[int]:
        return super().output(found, tokens[:-1] if tokens and tokens[-1] in found.stops else tokens, survives)


class RowsOfTheWholePath(Publisher):
    """Cuts the output at a stop token, and keeps the rows of all that was accepted (vllm-project/vllm#35978)."""

    refutes = "PUBLISH-602"

    @classmethod
    def nodes_with_rows(cls, found: Round, nodes: list[int], reason: str | None) -> list[int]:
        return found.path if reason == "stop" else nodes


class FeaturesOfTheWholePath(Publisher):
    """Cuts output and KV at a stop token, and keeps the features of all that was accepted."""

    refutes = "PUBLISH-602"

    @classmethod
    def feature_rows(cls, found: Round, nodes: list[int]) -> list[int]:
        tokens = [found.tokens[found.nodes.index(node)] for node in nodes]
        return super().feature_rows(found, found.path if found.stops & set(tokens) else nodes)


class FrontierAfterTheCut(Publisher):
    """Leaves the frontier of a round pending that was cut before it."""

    refutes = "PUBLISH-603"

    @classmethod
    def pending(cls, found: Round, survives: bool, reason: str | None) -> int | None:
        return found.case.decision.frontier


class SeedAfterTheCut(Publisher):
    """Holds a seed for the draft of a request that ended inside its path."""

    refutes = "PUBLISH-603"

    @classmethod
    def seed(cls, found: Round, features: list[float], survives: bool) -> float | None:
        return features[-1]


class StopIsNotPending(Publisher):
    """Takes a frontier that is a stop token for settled."""

    refutes = "PUBLISH-604"

    @classmethod
    def pending(cls, found: Round, survives: bool, reason: str | None) -> int | None:
        return None if reason == "stop" else super().pending(found, survives, reason)


class StopByLength(Publisher):
    """Says of every request that it ended by length."""

    refutes = "PUBLISH-605"

    @classmethod
    def reason(cls, found: Round, size: int, reason: str | None) -> str | None:
        return reason and "length"


class StopFrontierGoesOn(Publisher):
    """Ends at a stop token of the path, and not at a frontier that is one."""

    refutes = "PUBLISH-605"

    @classmethod
    def cut(cls, found: Round, new: list[int]) -> tuple[int, str | None]:
        size, reason = super().cut(found, new)
        if reason == "stop" and size == len(new):
            return size, "length" if size == found.room else None
        return size, reason


# ---- the limit


class LimitOfTheRound(Publisher):
    """Counts the tokens of this round against the limit, and none before it."""

    refutes = "PUBLISH-606"

    @classmethod
    def cut(cls, found: Round, new: list[int]) -> tuple[int, str | None]:
        for i, token in enumerate(new):
            if token in found.stops:
                return i + 1, "stop"
            if i + 1 == found.case.limits.max_new_tokens:
                return i + 1, "length"
        return len(new), None


class RowsBeyondTheLimit(Publisher):
    """Cuts the output at the limit, and keeps the rows of all that was accepted."""

    refutes = "PUBLISH-606"

    @classmethod
    def nodes_with_rows(cls, found: Round, nodes: list[int], reason: str | None) -> list[int]:
        return found.path if reason == "length" else nodes


class OneMoreThanTheLimit(Publisher):
    """Adds the frontier to a path that ends on the limit."""

    refutes = "PUBLISH-607"

    @classmethod
    def cut(cls, found: Round, new: list[int]) -> tuple[int, str | None]:
        size, reason = super().cut(found, new)
        return (size + 1 if reason == "length" and size == len(new) - 1 else size), reason


class LimitEndsNothing(Publisher):
    """Goes on after a frontier that was the last token allowed."""

    refutes = "PUBLISH-608"

    @classmethod
    def cut(cls, found: Round, new: list[int]) -> tuple[int, str | None]:
        size, reason = super().cut(found, new)
        return size, None if reason == "length" and size == len(new) else reason


class OneTokenEarly(Publisher):
    """Finishes a request that has room for one more token."""

    refutes = "PUBLISH-608"

    @classmethod
    def cut(cls, found: Round, new: list[int]) -> tuple[int, str | None]:
        size, reason = super().cut(found, new)
        return size, reason or ("length" if size + 1 == found.room else None)


# ---- both


class LimitHidesTheStop(Publisher):
    """Looks for no stop token in a round that reaches the limit (sgl-project/sglang#31599)."""

    refutes = "PUBLISH-609"

    @classmethod
    def cut(cls, found: Round, new: list[int]) -> tuple[int, str | None]:
        if found.room is not None and len(new) >= found.room:
            return found.room, "stop" if new[found.room - 1] in found.stops else "length"
        return super().cut(found, new)


class StopBeyondTheLimit(Publisher):
    """Cuts at a stop token, and at the limit only where there is none (sgl-project/sglang#33758)."""

    refutes = "PUBLISH-609"

    @classmethod
    def cut(cls, found: Round, new: list[int]) -> tuple[int, str | None]:
        for i, token in enumerate(new):
            if token in found.stops:
                return i + 1, "stop"
        return super().cut(found, new)


class LimitBeforeStop(Publisher):
    """Says "length" of a stop token that is also the last one allowed."""

    refutes = "PUBLISH-610"

    @classmethod
    def reason(cls, found: Round, size: int, reason: str | None) -> str | None:
        return "length" if size == found.room else reason


class StopAmongTheRejected(Publisher):
    """Ends where any row of the verification is a stop token."""

    refutes = "PUBLISH-611"

    @classmethod
    def finished(cls, found: Round, size: int, reason: str | None) -> bool:
        return reason is not None or bool(found.stops & set(found.tokens))


class StopInThePrompt(Publisher):
    """Ends where the prompt holds a stop token."""

    refutes = "PUBLISH-611"

    @classmethod
    def cut(cls, found: Round, new: list[int]) -> tuple[int, str | None]:
        size, reason = super().cut(found, new)
        return size, reason or ("stop" if found.stops & set(found.prompt) else None)
