"""Acceptance in torch at its edges: batches of none, nodes that are none, and what the adapter hands on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from adapters.fast_acceptance import Acceptance
from oracle.errors import BadInput
from oracle.fast import acceptance as fast
from oracle.fast.acceptance import Drafts
from oracle.types import ProposalCase, VerifyCase, WarpCase

PROPOSALS = ("point", "iid", "without_replacement")
WAYS = {"walk": False, "vectorised": True}


@pytest.mark.parametrize("vectorised", WAYS.values(), ids=WAYS)
def test_a_node_that_is_none_is_absent_where_nobody_looks(vectorised: bool) -> None:
    best = torch.tensor([[[0.0, 0.0, 1.0]] * 3])
    for token, parent in (([[3, 2]], [[-1, -1]]), ([[2, 2]], [[1, -1]])):
        drafts = Drafts(torch.tensor(token), torch.tensor(parent))
        for found in (
            fast.verify_greedy(drafts, best, validate=False, vectorised=vectorised),
            fast.verify_random(drafts, 1, best, validate=False, vectorised=vectorised),
        ):
            assert found.path[0, 0] == 1
            assert found.accepted.tolist() == [1]


@pytest.mark.parametrize("vectorised", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("proposal", PROPOSALS)
@pytest.mark.parametrize("logits", [False, True], ids=["probabilities", "logits"])
def test_a_batch_of_none_has_an_answer(vectorised: bool, proposal: str, logits: bool) -> None:
    token = torch.zeros((0, 2), dtype=torch.int64)
    for parent in (None, token):
        found = fast.verify_random(
            *(Drafts(token, parent), 1, torch.ones(0, 3, 4), torch.ones(0, 3, 4), proposal),
            **{"target_logits": logits, "draft_logits": logits, "vectorised": vectorised},  # type: ignore[arg-type]
        )
        assert [len(one) for one in found] == [0, 0, 0]


def test_the_adapter_hands_on_what_is_wrong() -> None:
    right = VerifyCase(np.array([-1, 0]), np.array([1, 2]), np.full((3, 4), 0.25), "point")
    assert len(Acceptance.verify_greedy([right])) == 1
    for field, change in {
        "drafts.token": {"token": np.array([1.0, 2.5])},
        "drafts.parent": {"parent": np.array([-1.0, -0.5])},
        "cases[0].parent": {"parent": np.array([-1])},
        "target": {"target_probs": np.ones((3, 4), dtype=np.int64)},
    }.items():
        with pytest.raises(BadInput) as caught:
            Acceptance.verify_greedy([replace(right, **change)])
        assert caught.value.field.startswith(field)
    with pytest.raises(BadInput, match="parent"):
        Acceptance.propose(ProposalCase({(): np.full(4, 0.25)}, np.array([-0.5]), "iid", 3, 1))
    with pytest.raises(BadInput, match="logits"):
        Acceptance.warp(WarpCase(np.array([1, 2])))
