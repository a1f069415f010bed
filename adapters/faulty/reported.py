"""Faults that public reports describe, each in its smallest form; the report is named beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from adapters.faulty.chain import BlackBox, Chain, Member, Row, Trial, normalised
from adapters.faulty.warping import Given, Warper
from oracle.types import Coins, Decision, VerifyCase


class AcceptsAMatchOrTheRatio(Chain):
    """Accepts a draft that equals a sample of the target, or that passes the ratio test (alibaba/rtp-llm#1295)."""

    refutes = "ACCEPTANCE-401"

    @classmethod
    def accepts(cls, trial: Trial) -> bool:
        return super().accepts(trial) or cls.pick(trial.target, (trial.u * 8191) % 1) == trial.token


class TargetSoftmaxedAgain(Chain):
    """Takes the softmax of target rows that are laws already (vllm-project/vllm-ascend#6685)."""

    refutes = "ACCEPTANCE-301"

    @classmethod
    def row(cls, rows: Any, index: int) -> Row:
        values = super().row(rows, index)
        return normalised([math.exp(p) for p in values])

    @classmethod
    def draft_row(cls, case: VerifyCase, node: int) -> Row:
        if case.proposal == "point" or case.draft_probs is None:
            return super().draft_row(case, node)
        return super().row(case.draft_probs, node)


class AlwaysGreedy(BlackBox):
    """Follows the argmax whatever it is asked for (sgl-project/sglang#31214)."""

    refutes = "ACCEPTANCE-110"

    @classmethod
    def sampled(cls, case: VerifyCase, coins: Coins) -> Decision:
        return cls.walk(
            case,
            lambda node, row: bool(case.token[node] == row.index(max(row))),
            lambda node, row, rejected: row.index(max(row)),
        )


class DraftRowsGatheredTwice(Chain):
    """Takes a member's draft rows from its offset in the batch, in rows already cut to it (TensorRT-LLM#12588)."""

    refutes = "ACCEPTANCE-105"

    @classmethod
    def members(cls, cases: Sequence[VerifyCase], coins: Sequence[Coins]) -> list[Member]:
        gathered, offset = [], 0
        for case in cases:
            draft = case.draft_probs
            if draft is not None:
                draft = draft[np.minimum(np.arange(len(draft)) + offset, len(draft) - 1)]
            offset += len(case.token)
            gathered.append(VerifyCase(case.parent, case.token, case.target_probs, case.proposal, draft))
        return list(zip(gathered, coins))


class ArgmaxAfterFiltering(Warper):
    """Filters, and then publishes the argmax as if it were the law (EricLBuehler/mistral.rs#2424)."""

    refutes = "ACCEPTANCE-1002"

    @classmethod
    def finish(cls, law: Row, logits: Row, kept: list[int], given: Given) -> Row:
        return [float(v == kept[0]) for v in range(len(law))]
