"""Publications with one fault each: structure and outputs; the modules beside it, `publish_…`, hold the others.

`--impl=adapters.faulty.publish:Name` names any of them. `refutes` was written down before the run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from adapters.faulty.publish_drafter import *  # noqa: F403 - one address for every fault
from adapters.faulty.publish_ends import *  # noqa: F403
from adapters.faulty.publish_paged import *  # noqa: F403
from adapters.faulty.publish_refusals import *  # noqa: F403
from adapters.faulty.publish_rounds import *  # noqa: F403
from adapters.faulty.publish_rows import *  # noqa: F403
from adapters.faulty.publishing import PAD, Publisher, Round
from oracle.types import CommittedState, PublishCase


class TokensAsFloats(Publisher):
    """Returns the output in floating point."""

    refutes = "PUBLISH-101"

    @classmethod
    def member(cls, found: Round) -> CommittedState:
        state = super().member(found)
        return dataclasses.replace(state, output=state.output.astype(float))


class KvAsAMatrix(Publisher):
    """Returns KV as a matrix with one request a line."""

    refutes = "PUBLISH-101"

    @classmethod
    def member(cls, found: Round) -> CommittedState:
        state = super().member(found)
        return dataclasses.replace(state, kv=state.kv[None])


class NoEmptyBatch(Publisher):
    """Asks for the longest path of a batch, and an empty batch has none."""

    refutes = "PUBLISH-101"

    @classmethod
    def batch(cls, cases: Sequence[PublishCase], states: list[CommittedState]) -> list[CommittedState]:
        max(len(case.decision.path) for case in cases)
        return states


class MovesRowsOfTheCase(Publisher):
    """Gathers the accepted rows at the front of the array that it was handed."""

    refutes = "PUBLISH-102"

    @classmethod
    def kv(cls, found: Round, nodes: list[int]) -> list[float]:
        rows = cls.kv_rows(found, nodes)
        found.case.verified.kv[: len(rows)] = [found.kv[row] + 0.0 for row in reversed(rows)]
        return super().kv(found, nodes)


class PromptTakesTheOutput(Publisher):
    """Adds the earlier output to the prompt."""

    refutes = "PUBLISH-103"

    @classmethod
    def prompt(cls, found: Round) -> list[int]:
        return [*found.prompt, *found.output]


# ---- outputs


class OutputStartsAnew(Publisher):
    """Returns the tokens of the round alone."""

    refutes = "PUBLISH-201"

    @classmethod
    def output(cls, found: Round, tokens: list[int], survives: bool) -> list[int]:
        return super().output(found, tokens, survives)[len(found.output) :]


class ForgetsTheFrontier(Publisher):
    """Outputs the path, and leaves the frontier to the next round."""

    refutes = "PUBLISH-202"

    @classmethod
    def output(cls, found: Round, tokens: list[int], survives: bool) -> list[int]:
        return super().output(found, tokens, survives and not tokens)


class FrontierFirst(Publisher):
    """Outputs the frontier before the path."""

    refutes = "PUBLISH-202"

    @classmethod
    def output(cls, found: Round, tokens: list[int], survives: bool) -> list[int]:
        frontier = [found.case.decision.frontier] if survives else []
        return [*found.output, *frontier, *tokens]


class LastRowForNone(Publisher):
    """Where nothing is accepted, its index is −1 and outputs the last row's token (lightseekorg/tokenspeed#298)."""

    refutes = "PUBLISH-203"

    @classmethod
    def output(cls, found: Round, tokens: list[int], survives: bool) -> list[int]:
        return super().output(found, tokens or found.tokens[-1:], survives)


class TokensByCount(Publisher):
    """Outputs as many rows behind the root's as were accepted (NVIDIA/TensorRT-LLM#10343)."""

    refutes = "PUBLISH-204"

    @classmethod
    def token_rows(cls, found: Round) -> list[int]:
        drafted = [row for row, node in enumerate(found.nodes) if node >= 0]
        return drafted[: len(found.path)]


class TokenRowIsTheNode(Publisher):
    """Takes node i for the row behind the root's and i others."""

    refutes = "PUBLISH-205"

    @classmethod
    def token_rows(cls, found: Round) -> list[int]:
        return [min(node + found.rooted, len(found.nodes) - 1) for node in found.path]


class PaddingHasNoRow(Publisher):
    """Counts rows without padding, and reads the tokens of all rows."""

    refutes = "PUBLISH-205"

    @classmethod
    def token_rows(cls, found: Round) -> list[int]:
        held = [node for node in found.nodes if node != PAD]
        return [held.index(node) for node in found.path]
