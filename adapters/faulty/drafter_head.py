"""Drafters with one fault each: the feed-forward part, the head."""

from __future__ import annotations

import math

import numpy as np

from adapters.faulty.drafting import Array, Drafting, Net

# ---- the feed-forward part


class GateAndUpExchanged(Drafting):
    """Applies silu to the other half."""

    refutes = "DRAFTER-601"

    @classmethod
    def gated(cls, net: Net, gate: Array, up: Array) -> Array:
        return super().gated(net, up, gate)


class Gelu(Drafting):
    """Has gelu where silu belongs."""

    refutes = "DRAFTER-601"

    @classmethod
    def gated(cls, net: Net, gate: Array, up: Array) -> Array:
        return np.asarray(gate * [0.5 * (1 + math.erf(x / math.sqrt(2))) for x in gate.tolist()] * up)


class FeedForwardNotNormed(Drafting):
    """Feeds the state forward as attention left it."""

    refutes = "DRAFTER-602"

    @classmethod
    def before_feed_forward(cls, net: Net, residual: Array, middle: Array) -> Array:
        return middle


class FeedForwardBesideAttention(Drafting):
    """Feeds the fused row forward, beside attention and not after it."""

    refutes = "DRAFTER-602"

    @classmethod
    def before_feed_forward(cls, net: Net, residual: Array, middle: Array) -> Array:
        return super().before_feed_forward(net, middle, residual)


class FeedForwardNormedByAnotherWeight(Drafting):
    """Norms by the feature's weight before the feed-forward part of EAGLE-3."""

    refutes = "DRAFTER-602"

    @classmethod
    def before_feed_forward(cls, net: Net, residual: Array, middle: Array) -> Array:
        return cls.norm(net, middle, net.weight("post_attention_layernorm" if net.eagle1 else "hidden_norm"))


# ---- the head


class HeadOfTheEmbeddings(Drafting):
    """Takes the target's tied embeddings for the draft's head, cut to its size."""

    refutes = "DRAFTER-701"

    @classmethod
    def matrix(cls, net: Net, part: str) -> Array:
        found = super().matrix(net, part)
        return np.resize(net.weight("embed_tokens"), found.shape) if part == "lm_head" else found


class MapIgnored(Drafting):
    """Scatters logits to the target's ids, and reads them back by the draft's."""

    refutes = "DRAFTER-702"

    @classmethod
    def logits(cls, net: Net, state: Array) -> Array:
        found = super().logits(net, state)
        if "d2t" not in net.case.weights:
            return found
        wide = np.full(len(net.case.weights["t2d"]), -1e30)
        wide[(net.case.weights["d2t"] + np.arange(len(found))).astype(int)] = found
        return wide[: len(found)]


class LogitsOfTheFirstRow(Drafting):
    """Reads the prefix's logits at its first row."""

    refutes = "DRAFTER-703"

    @classmethod
    def first_logits(cls, net: Net, prefix: list[Array]) -> Array:
        return cls.logits(net, prefix[0])


class LogitsOfTheRowBeforeLast(Drafting):
    """Reads the prefix's logits a row too early."""

    refutes = "DRAFTER-703"

    @classmethod
    def first_logits(cls, net: Net, prefix: list[Array]) -> Array:
        return cls.logits(net, prefix[max(len(prefix) - 2, 0)])


class FinalNormDropped(Drafting):
    """Reads EAGLE-3 logits from the state as it is."""

    refutes = "DRAFTER-704"

    @classmethod
    def before_head(cls, net: Net, state: Array) -> Array:
        return state


class FinalNormTwice(Drafting):
    """Norms in the model, and again before the head."""

    refutes = "DRAFTER-704"

    @classmethod
    def before_head(cls, net: Net, state: Array) -> Array:
        once = super().before_head(net, state)
        return once if net.eagle1 else super().before_head(net, once)


class FinalNormInEagle1(Drafting):
    """Norms before the head of EAGLE-1, too."""

    refutes = "DRAFTER-704"

    @classmethod
    def before_head(cls, net: Net, state: Array) -> Array:
        found = super().before_head(net, state)
        return cls.norm(net, found, np.ones_like(found)) if net.eagle1 else found


class FinalNormByAnotherWeight(Drafting):
    """Takes the layer's last norm for the final one."""

    refutes = "DRAFTER-704"

    @classmethod
    def before_head(cls, net: Net, state: Array) -> Array:
        return state if net.eagle1 else cls.norm(net, state, net.weight("post_attention_layernorm"))
