"""What vLLM keeps of a verified round: the runner's slots, the EAGLE proposer's rows, the scheduler's output.

The code under test, one call each for a whole ragged batch of chains (`adapters/vllm_step.py` says how it runs):
- `BlockTable.compute_slot_mapping`: where the target writes the round's KV, and where it is read afterwards;
- `RejectionSampler.parse_output`: the output row of each request;
- `EagleProposer`: `prepare_next_token_ids_padded`, `prepare_inputs_padded` and the whole of `propose`, with
  `set_inputs_first_pass` and, for drafts after the first, `eagle_step_update_slot_mapping_and_metadata`; and
  `prepare_inputs`, which the runner takes instead where batches are not padded;
- `Scheduler._update_after_schedule` and `Scheduler.update_from_output`, with `check_stop`, over real `Request`s.
`adapters.vllm` runs the CPU build's C++ kernels, `adapters.vllm:triton` the Triton kernels, interpreted. The verdict is
no part of it: the sampled ids are the case's path and frontier, padded with −1.

What is converted, and nothing else:
- a request to blocks of four slots, dealt out in turns, so that no two of a request lie side by side. Free slots hold
  NaN;
- a case's rows to the request's rows of the batch, the pending token first. The target "computes" the case's numbers,
  the drafter those that it is fed, and it always drafts token 0, as often as the longest chain has drafts. Its rows of
  these hold NaN;
- no limit to a million tokens; the context has room for more than any case asks for.

What is read back: output from the request; KV through the block table, as far as the scheduler counts it as computed;
pending token and seed as the drafter consumes them; features as `prepare_inputs` selects them, behind the earlier ones,
of which no engine keeps any. A request that is finished leaves the batch: it has no features, seed or drafter rows any
more, and its pending token is one that is not computed. Rows behind a rejection are overwritten in place, so `freed` is
not shown.

Not applicable: trees, rows in another order than that of the chain, padding in front of one of them (padding behind
them is nobody's, and is not handed on), requests without a pending token, states with other numbers of rows than their
lengths say, a limit of less than one token, and ids above 32 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np

from adapters import vllm_step
from adapters.interface import Deviation, NotApplicable
from adapters.vllm_engine import Engine, engine
from oracle.types import NOT_SHOWN, PADDING_ROW, ROOT_ROW, CommittedState, PublishCase

CPP_COST = {"publish": 1e-3}
TRITON_COST = {"publish": 1e-2}
_SCHEDULER = "https://github.com/vllm-project/vllm/blob/main/vllm/v1/core/sched/scheduler.py"
_COUNT = "https://github.com/vllm-project/vllm/pull/35978"
_COUNTED = "drafts that were accepted behind the end of the output stay counted as computed"
DEVIATIONS = (
    Deviation("PUBLISH-602", _COUNTED, link=_COUNT, witness="stop_inside"),
    Deviation("PUBLISH-606", _COUNTED, link=_COUNT, witness="limit_inside"),
    Deviation("PUBLISH-902", f"members that end inside their path: {_COUNTED}", link=_COUNT),
    Deviation("PUBLISH-903", f"rounds that end inside their path: {_COUNTED}", link=_COUNT),
    Deviation(
        "PUBLISH-1001", "a result is that of a request, of no certain round: it is published again", link=_SCHEDULER
    ),
    Deviation(
        "PUBLISH-1002",
        "the result of a finished request is passed over in silence, and one at its limit outputs one more token",
        link=_SCHEDULER,
    ),
    Deviation("PUBLISH-1107", f"requests that end inside a path: {_COUNTED}", link=_COUNT),
)
BLOCK = 4
UNLIMITED = 1_000_000
VOCABULARY = 2**31 - 1


def publish(kind: str, cases: Sequence[PublishCase]) -> list[CommittedState]:
    """One step of one engine."""
    if not cases:
        return []
    requests = [_Request(case) for case in cases]
    engine(kind)
    return _Step(requests).publish()


class _Request:
    """A case as vLLM holds it."""

    def __init__(self, case: PublishCase) -> None:
        self.case = case
        state, verified, limits = case.state, case.verified, case.limits
        self.prompt, self.output = np.asarray(state.prompt).tolist(), np.asarray(state.output).tolist()
        self.computed = len(self.prompt) + len(self.output) - 1
        nodes, path = np.asarray(verified.row_node).tolist(), list(case.decision.path)
        while nodes[-1:] == [PADDING_ROW]:
            nodes.pop()
        if state.pending is None or nodes[:1] != [ROOT_ROW]:
            raise NotApplicable("the first row of a request is the pending token's")
        if min(nodes[1:], default=0) < 0 or len(set(nodes)) < len(nodes) or path != nodes[1 : 1 + len(path)]:
            raise NotApplicable("a request's rows are a chain of drafts, and a path is the first of them")
        if len(state.kv) != self.computed or len(state.features) != self.computed:
            raise NotApplicable("the scheduler counts one length")
        self.rows = len(nodes)
        self.drafts = np.asarray(verified.row_token).tolist()[1 : self.rows]
        self.sampled = [*self.drafts[: len(path)], int(case.decision.frontier)]
        self.limit = UNLIMITED if limits.max_new_tokens is None else int(limits.max_new_tokens)
        if self.limit < 1:
            raise NotApplicable("a request asks for at least one token")
        if max(*self.sampled, *self.drafts, self.prompt[-1], *self.output[-1:]) >= VOCABULARY:
            raise NotApplicable("the sampler's ids have 32 bits")

    def real(self, name: str) -> Any:
        """vLLM's own request, its computed tokens counted."""
        from vllm import SamplingParams
        from vllm.v1.request import Request, RequestStatus

        stops = np.asarray(self.case.limits.stop_tokens).tolist()
        parameters = SamplingParams(max_tokens=self.limit, stop_token_ids=stops, detokenize=False)
        request = Request(name, self.prompt, parameters, None)
        request.append_output_token_ids(self.output)
        request.num_computed_tokens = self.computed
        request.take_prefill_stats()
        request.status = RequestStatus.RUNNING
        if self.case.state.finished:
            stopped = self.case.state.finish_reason == "stop"
            request.status = RequestStatus.FINISHED_STOPPED if stopped else RequestStatus.FINISHED_LENGTH_CAPPED
        return request


class _Step:
    """A batch of one step: its caches and block table, then the step in the engine's order."""

    def __init__(self, members: list[_Request]) -> None:
        import torch
        from vllm.v1.worker.block_table import BlockTable

        self.torch, self.members = torch, members
        self.counts = [len(member.drafts) for member in members]
        self.most = max(1, *self.counts)
        longest = max(member.computed for member in members) + 2 * (self.most + 1)
        blocks = -(-longest // BLOCK)
        self.longest, self.total = blocks * BLOCK, sum(member.rows for member in members)
        self.tables = BlockTable(
            block_size=BLOCK,
            max_num_reqs=len(members),
            max_num_blocks_per_req=blocks,
            max_num_batched_tokens=max(self.total, len(members)),
            pin_memory=False,
            device=torch.device("cpu"),
            cp_kv_cache_interleave_size=1,
        )
        dealt = 1 + np.arange(len(members) * blocks)[::-1].reshape(blocks, len(members))
        for i in range(len(members)):
            self.tables.add_row(dealt[:, i].tolist(), i)
        self.tables.commit_block_table(len(members))
        slots = (1 + dealt.size) * BLOCK
        self.kv, self.draft_kv = (torch.full((slots,), float("nan"), dtype=torch.float64) for _ in range(2))
        for i, member in enumerate(members):
            state, held = member.case.state, self._slots(i, member.computed)
            self.kv[held] = self._numbers(state.kv)
            if state.draft_kv is not None:
                self.draft_kv[held] = self._numbers(state.draft_kv)
        self.requests = {str(i): member.real(str(i)) for i, member in enumerate(members)}

    def _slots(self, i: int, count: int) -> Any:
        """Where attention reads the first rows of a request."""
        places = np.arange(count)
        row = self.tables.get_numpy_array()[i].astype(np.int64)
        return self.torch.from_numpy(row[places // BLOCK] * BLOCK + places % BLOCK)

    def _numbers(self, values: Any) -> Any:
        return self.torch.from_numpy(np.array(values, dtype=np.float64))

    def publish(self) -> list[CommittedState]:
        torch, members = self.torch, self.members
        with torch.inference_mode():
            scheduled = self._schedule()
            metadata, features = self._target()
            width = max(self.counts) + 1
            sampled = torch.tensor(
                [member.sampled + [-1] * (width - len(member.sampled)) for member in members], dtype=torch.int32
            )
            pending, seeds = self._draft(metadata, features, sampled)
            parsed, _ = Engine.sampler.parse_output(sampled, VOCABULARY)
            features = self._selected(metadata, features, [list(row) for row in parsed])
        self._update(scheduled, parsed)
        return [self._state(i, int(pending[i]), float(seeds[i]), features[i]) for i in range(len(members))]

    # ---- scheduler

    def _schedule(self) -> Any:
        scheduled = SimpleNamespace(
            num_scheduled_tokens={str(i): member.rows for i, member in enumerate(self.members)},
            scheduled_spec_decode_tokens={str(i): m.drafts for i, m in enumerate(self.members) if m.drafts},
            total_num_scheduled_tokens=self.total,
            num_invalid_spec_tokens=None,
            has_structured_output_requests=False,
        )
        self.scheduler = vllm_step.scheduler(self.requests, self.longest + UNLIMITED)
        self.scheduler._update_after_schedule(scheduled)
        return scheduled

    def _update(self, scheduled: Any, parsed: list[list[int]]) -> None:
        from vllm.v1.outputs import ModelRunnerOutput

        names = list(self.requests)
        output = ModelRunnerOutput(names, {name: i for i, name in enumerate(names)}, parsed)
        self.scheduler.update_from_output(scheduled, output)

    # ---- target

    def _target(self) -> tuple[Any, Any]:
        """The target's step: the rows' numbers in their slots; the step's attention metadata, and the features."""
        from vllm.v1.attention.backend import CommonAttentionMetadata

        torch, members = self.torch, self.members
        starts = np.cumsum([0, *(member.rows for member in members)])
        positions = [place for member in members for place in range(member.computed, member.computed + member.rows)]
        self.positions = torch.tensor(positions, dtype=torch.int64)
        self.starts = torch.from_numpy(starts.astype(np.int32))
        self.tables.compute_slot_mapping(len(members), self.starts, self.positions)
        slots = self.tables.slot_mapping.gpu[: self.total].clone()
        self.kv[slots] = torch.cat([self._numbers(member.case.verified.kv)[: member.rows] for member in members])
        features = torch.cat([self._numbers(member.case.verified.features)[: member.rows] for member in members])[
            :, None
        ]
        lengths = torch.tensor([member.computed + member.rows for member in members], dtype=torch.int32)
        metadata = CommonAttentionMetadata(
            query_start_loc=self.starts,
            query_start_loc_cpu=self.starts.clone(),
            seq_lens=lengths,
            seq_lens_cpu_upper_bound=lengths.clone(),
            num_reqs=len(members),
            num_actual_tokens=self.total,
            max_query_len=max(member.rows for member in members),
            max_seq_len=int(lengths.max()),
            block_table_tensor=self.tables.get_device_tensor(len(members)),
            slot_mapping=slots,
        )
        return metadata, features

    # ---- drafter

    def _draft(self, metadata: Any, features: Any, sampled: Any) -> tuple[Any, Any]:
        """What the runner asks of its proposer: the next token and the feature of each request's first draft."""
        torch, members = self.torch, self.members
        drafter = vllm_step.Drafter(self.draft_kv)
        proposer = vllm_step.proposer(drafter, self.total, len(members), BLOCK, self.longest)
        tokens = torch.tensor([t for m in members for t in ((m.prompt + m.output)[-1], *m.drafts)], dtype=torch.int32)
        batch = SimpleNamespace(
            num_reqs=len(members),
            req_ids=list(self.requests),
            num_tokens_no_spec=np.array([member.computed + 1 for member in members]),
            vocab_size=VOCABULARY,
        )
        cached = {
            name: SimpleNamespace(get_token_id=lambda at, request=request: request._all_token_ids[at])
            for name, request in self.requests.items()
        }
        nobody = torch.zeros(len(members), dtype=torch.bool)
        following, valid = proposer.prepare_next_token_ids_padded(sampled, cached, batch, nobody)
        at = rejected = None
        if any(self.counts):
            drafts = SimpleNamespace(cu_num_draft_tokens=torch.tensor(np.cumsum(self.counts), dtype=torch.int32))
            metadata, at, rejected = proposer.prepare_inputs_padded(metadata, drafts, valid)
        with drafter.context():
            proposer.propose(
                self.most,
                tokens,
                self.positions,
                features,
                following,
                at,
                metadata.replace(seq_lens=metadata.seq_lens.clone()),
                SimpleNamespace(all_greedy=True),
                num_rejected_tokens_gpu=rejected,
            )
        return following, drafter.seeds

    def _selected(self, metadata: Any, features: Any, parsed: list[list[int]]) -> list[np.ndarray]:
        """The features of each request that go to the drafter where batches are not padded."""
        spec, rows = vllm_step.proposer(None, self.total, len(self.members), BLOCK, self.longest).prepare_inputs(
            metadata, parsed, self.counts
        )
        starts, kept = spec.query_start_loc_cpu.tolist(), features[rows.long(), 0].numpy()
        return [kept[start:end] for start, end in pairwise(starts)]

    # ---- the state after

    def _state(self, i: int, pending: int, seed: float, features: np.ndarray) -> CommittedState:
        member, request = self.members[i], self.requests[str(i)]
        held = self._slots(i, request.num_computed_tokens)
        finished = request.is_finished()
        waiting = list(request.all_token_ids)[request.num_computed_tokens :]
        draft_kv = None
        if member.case.state.draft_kv is not None:
            draft_kv = NOT_SHOWN if finished else self.draft_kv[held].numpy()
        reason = request.get_finished_reason() if finished else None
        return CommittedState(
            prompt=np.array(request.prompt_token_ids, dtype=np.int64),
            output=np.array(list(request.output_token_ids), dtype=np.int64),
            kv=self.kv[held].numpy(),
            features=NOT_SHOWN if finished else np.concatenate([np.asarray(member.case.state.features), features]),
            pending=(waiting[0] if waiting else None) if finished else pending,
            finished=finished,
            seed=NOT_SHOWN if finished else seed,
            freed=NOT_SHOWN,
            finish_reason=None if reason is None else str(reason),
            draft_kv=draft_kv,
        )
