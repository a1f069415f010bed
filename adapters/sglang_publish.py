"""What SGLang's EAGLE worker and its scheduler keep of a verified round: KV slots, features, drafter rows, output.

The code under test, one call each for a whole batch (`adapters/sglang_engine.py` and `adapters/sglang_server.py` say
how it comes to run):
- `run_eagle_verify` of `srt/speculative/eagle_worker_common.py`: the slots of the window (`eagle_prepare_for_verify`),
  `prepare_verify_commit_outputs`, and for trees `move_accept_tokens_to_target_kvcache` down to the pool's
  `move_kv_cache_native`, and the compaction of tokens and features;
- `EagleDraftWorker._draft_extend_for_decode`: which rows the drafter writes, and where the next draft starts;
- `SchedulerBatchResultProcessor.process_batch_result_decode`: output, stop tokens, limits (`Req.update_finish_state`)
  and the release of a finished request (`release_kv_cache`).
Triton's interpreter runs the kernels. The verdict is no part of it: `eagle_sample` is replaced by the case's decision.

What is converted, and nothing else:
- a request to a row of the request-to-token table and slots of a pool, those of one batch dealt out in turns, so that
  no two of a request lie side by side; a slot holds the case's number as key and as value. Free slots hold NaN;
- a case's rows to the request's window, one slot each in their order; a window is as long as the longest of the batch,
  as trees of one server are. The target "computes" the numbers of the case's rows, the drafter those that it is fed;
- a decision to `accept_index` and `predict`. What the target predicts elsewhere is a token that no case holds;
- a batch is one of topk 1 where each member's rows are a chain, root first, and its path begins at the root; else of a
  tree. Its number of steps is the longest path's;
- tensors of tokens say that they are on a GPU, as there the engine takes the path with fused kernels;
- no limit to 2³⁰ tokens, which is the scheduler's.

What is read back: output through the engine's own cut; KV through the table, as far as the request owns it; features as
`return_hidden_states` gathers them; seed and pending token from the next draft's input. A finished request leaves the
batch: it has no features, seed or drafter rows any more, and its pending token is one that owns no KV. Slots of
rejected rows stay with the request and are overwritten, so `freed` is not shown.

Not applicable: requests without a pending token (a prefill always samples one), nodes without a row or with two, and
states with other numbers of rows than their lengths say.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

from adapters import sglang_server as server
from adapters import triton_interpreter
from adapters.interface import Deviation, NotApplicable
from oracle.types import NOT_SHOWN, PADDING_ROW, ROOT_ROW, CommittedState, PublishCase

COST = {"publish": 3e-2}
_CODE = "https://github.com/sgl-project/sglang/blob/v0.5.23/python/sglang/srt"
_VERIFY = f"{_CODE}/speculative/eagle_worker_common.py#L547"
_RESULTS = f"{_CODE}/managers/scheduler_components/batch_result_processor.py#L1022"
DEVIATIONS = (
    Deviation(
        "PUBLISH-903",
        "a predicted id that is out of range ends a request before its stop tokens are looked for, and what was "
        "accepted behind a stop token is output with it",
        link=f"{_CODE}/managers/schedule_batch.py#L2018",
    ),
    Deviation(
        "PUBLISH-1001", "a result is that of a request, of no certain round: it is published again", link=_VERIFY
    ),
    Deviation(
        "PUBLISH-1002",
        "the result of a finished request is passed over in silence, and one at its limit is cut to it",
        link=_RESULTS,
    ),
    Deviation("PUBLISH-1004", "accept_index is taken as it is, a slot twice as well", link=_VERIFY),
    Deviation("PUBLISH-1006", "the bad member is published like the others", link=_VERIFY),
)
UNPREDICTED = 2**31 - 2
"""What the target predicts behind rows that are not on the path."""
UNLIMITED = 1 << 30


def publish(cases: Sequence[PublishCase]) -> list[CommittedState]:
    """One batch of one worker."""
    if not cases:
        return []
    return _Round(list(cases)).publish()


class _Request:
    """A case as the engine holds it: its slots in the table, and its window's rows."""

    def __init__(self, case: PublishCase) -> None:
        self.case = case
        state, verified = case.state, case.verified
        self.prompt, self.output = np.asarray(state.prompt).tolist(), np.asarray(state.output).tolist()
        self.length = len(self.prompt) + len(self.output) - 1
        nodes = np.asarray(verified.row_node).tolist()
        if state.pending is None or ROOT_ROW not in nodes:
            raise NotApplicable("a window begins with the pending token, and there always is one")
        if any(nodes.count(node) > 1 for node in nodes if node != PADDING_ROW):
            raise NotApplicable("a node has one slot of the window")
        if any(node not in nodes or node < 0 for node in case.decision.path):
            raise NotApplicable("what is accepted has a slot of the window")
        if len(state.kv) != self.length or len(state.features) != self.length:
            raise NotApplicable("seq_lens is the one length of a request")
        self.rows = [nodes.index(node) for node in (ROOT_ROW, *case.decision.path)]
        accepted = np.asarray(verified.row_token)[self.rows[1:]].tolist()
        self.predicted = [*accepted, int(case.decision.frontier)]
        if max(self.predicted) >= UNPREDICTED:
            raise NotApplicable("the target predicts token ids of 32 bits")
        self.chain = nodes[: len(self.rows)] == list(range(-1, len(self.rows) - 1)) == [*nodes[:1], *case.decision.path]
        self.window = len(nodes)


class _Round:
    """A batch: its pools and tables, then the round in the engine's order."""

    def __init__(self, cases: list[PublishCase]) -> None:
        self.e = e = server.code()
        torch = e.torch
        self.members = [_Request(case) for case in cases]
        self.window = max(2, *(member.window for member in self.members))
        self.steps = max(1, *(len(member.rows) - 1 for member in self.members))
        if self.window < self.steps + 1:
            raise NotApplicable("a path is no longer than its window")
        chain = all(member.chain for member in self.members)
        self.topk = 1 if chain else 2
        if chain:
            self.steps = max(1, self.window - 1)
        # Slot 0 is nobody's; the others are dealt out in turns, the last of them first.
        count, longest = len(cases), max(member.length for member in self.members) + self.window
        self.slots = 1 + np.arange(count * longest)[::-1].reshape(longest, count).T
        self.table = torch.from_numpy(self.slots.astype(np.int32, order="C"))
        self.draft_kv = server.buffer(self.slots.size)
        self.pool = server.pool(self.slots.size)
        for i, member in enumerate(self.members):
            self._fill(i, member)
        self.reqs = [self._req(i, member) for i, member in enumerate(self.members)]
        self.batch = self._batch()

    # ---- the state before

    def _fill(self, i: int, member: _Request) -> None:
        held, state, verified = self.slots[i], member.case.state, member.case.verified
        for buffer in (*self.pool.k_buffer, *self.pool.v_buffer):
            buffer[held[: member.length].copy(), 0, 0] = self._numbers(state.kv)
        if state.draft_kv is not None:
            self.draft_kv[held[: member.length].copy(), 0, 0] = self._numbers(state.draft_kv)
            if verified.draft_kv is not None:
                window = held[member.length : member.length + member.window]
                self.draft_kv[window.copy(), 0, 0] = self._numbers(verified.draft_kv)

    def _numbers(self, values: Any) -> Any:
        return self.e.torch.from_numpy(np.array(values, dtype=np.float64))

    def _req(self, i: int, member: _Request) -> Any:
        limits = member.case.limits
        params = SimpleNamespace(
            stop_token_ids=set(np.asarray(limits.stop_tokens).tolist()),
            max_new_tokens=UNLIMITED if limits.max_new_tokens is None else limits.max_new_tokens,
            stop_strs=[],
            stop_regex_strs=[],
            custom_params=None,
            ignore_eos=False,
        )
        req = self.e.requests.Req(str(i), "", array("q", member.prompt), params, return_hidden_states=True)
        req.output_ids.extend(member.output)
        req.hidden_states.extend([number] for number in np.asarray(member.case.state.features).tolist())
        req.kv.req_pool_idx, req.kv.kv_committed_len = i, member.length
        req.kv.kv_allocated_len = self.slots.shape[1]
        if member.case.state.finished:
            stopped = member.case.state.finish_reason == "stop"
            r = self.e.requests
            req.finished_reason = r.FINISH_MATCHED_TOKEN(0) if stopped else r.FINISH_LENGTH(len(member.output))
        return req

    def _batch(self) -> Any:
        torch = self.e.torch
        lengths = torch.tensor([member.length for member in self.members], dtype=torch.int64)
        tokens = torch.zeros((len(self.members), self.window), dtype=torch.int64)
        for row, member in zip(tokens, self.members, strict=True):
            row[: member.window] = torch.from_numpy(np.array(member.case.verified.row_token, dtype=np.int64))
        table = SimpleNamespace(req_to_token=self.table, free=lambda req: None)
        verify = self.e.info.EagleVerifyInput(
            draft_token=tokens.reshape(-1),
            custom_mask=None,
            positions=None,
            retrieve_index=torch.arange(tokens.numel()).view_as(tokens),
            retrieve_next_token=None,
            retrieve_next_sibling=None,
            retrieve_cum_len=None,
            spec_steps=self.steps,
            topk=self.topk,
            draft_token_num=self.window,
            capture_hidden_mode=None,
            seq_lens_sum=None,
            seq_lens_cpu=None,
        )
        return SimpleNamespace(
            reqs=self.reqs,
            batch_size=lambda: len(self.reqs),
            seq_lens=lengths,
            seq_lens_cpu=lengths.clone(),
            req_pool_indices=torch.arange(len(self.reqs)),
            req_to_token_pool=table,
            input_ids=None,
            out_cache_loc=None,
            forward_mode=self.e.modes_of_forward.DECODE,
            device="cpu",
            model_config=SimpleNamespace(vocab_size=2**63 - 1),
            sampling_info=SimpleNamespace(is_all_greedy=True, has_watermark_candidates=False),
            spec_info=verify,
            spec_algorithm=SimpleNamespace(is_none=lambda: False),
            has_grammar=False,
            return_logprob=False,
            hisparse_coordinator=None,
            mamba_track_indices=None,
            mamba_track_mask_cpu=None,
            tree_cache=server.tree_cache(table),
        )

    # ---- the round

    def publish(self) -> list[CommittedState]:
        e = self.e
        allocator = server.Deaf(get_kvcache=lambda: self.pool, page_size=1)
        runner = SimpleNamespace(
            spec_algorithm=SimpleNamespace(is_standalone=lambda: False),
            watermark_state=None,
            attn_backend=server.Deaf(verify_mask=None),
            decode_cuda_graph_runner=None,
        )
        with ExitStack() as stack:
            stack.enter_context(triton_interpreter.launches())
            stack.enter_context(mock.patch.object(e.common, "eagle_sample", self._decided))
            stack.enter_context(mock.patch.object(e.common, "commit_mamba_states_after_verify", lambda *_, **__: None))
            result = e.common.run_eagle_verify(
                self.batch,
                target_worker=SimpleNamespace(model_runner=runner, forward_batch_generation=self._target),
                req_to_token_pool=self.batch.req_to_token_pool,
                token_to_kv_pool_allocator=allocator,
                plan_stream=None,
                plan_stream_ctx=nullcontext(),
                topk=self.topk,
                num_draft_tokens=self.window,
                device="cpu",
                metadata_ready_pre_pad=False,
                finalize_tree_path=True,
            )
            worker = SimpleNamespace(
                device="cpu",
                topk=2,
                speculative_num_draft_tokens=self.window,
                plan_stream=None,
                plan_stream_ctx=nullcontext(),
                draft_runner=SimpleNamespace(
                    forward=self._drafter,
                    spec_algorithm=runner.spec_algorithm,
                    attn_backend=server.Deaf(),
                    canary_manager=None,
                ),
                cuda_graph_runner_for_draft_extend=None,
                seed_dsa_topk_from_draft_extend=False,
            )
            e.worker.EagleDraftWorker._draft_extend_for_decode(worker, self.batch, result)
        result.next_token_ids = result.next_token_ids.as_subclass(e.torch.Tensor)
        self.batch.forward_mode = e.modes_of_forward.DECODE
        server.processor(allocator, self.batch.tree_cache).process_batch_result_decode(self.batch, result)
        return [self._state(i, result) for i in range(len(self.members))]

    def _target(self, **_: Any) -> Any:
        """The target's forward: the case's numbers, in the slots that it was told and in the order of the rows."""
        torch, locations = self.e.torch, self.batch.out_cache_loc.view(len(self.members), -1)
        features = torch.full((*locations.shape, 1), float("nan"), dtype=torch.float64)
        for i, member in enumerate(self.members):
            for buffer in (*self.pool.k_buffer, *self.pool.v_buffer):
                buffer[locations[i, : member.window], 0, 0] = self._numbers(member.case.verified.kv)
            features[i, : member.window, 0] = self._numbers(member.case.verified.features)
        output = SimpleNamespace(
            hidden_states=features.view(-1, 1),
            next_token_logits=torch.zeros((locations.numel(), 1)),
            sampling_mask_output=None,
            customized_info=None,
        )
        return SimpleNamespace(
            logits_output=output, can_run_cuda_graph=False, routed_experts_output=None, indexer_topk_output=None
        )

    def _decided(self, *_: Any, **__: Any) -> tuple[Any, Any, Any]:
        """The verdict as `eagle_sample` hands it out: predict, accept_lens, accept_index."""
        torch = self.e.torch
        predict = torch.full((len(self.members), self.window), UNPREDICTED, dtype=torch.int32)
        index = torch.full((len(self.members), self.steps + 1), -1, dtype=torch.int32)
        for i, member in enumerate(self.members):
            predict[i, member.rows] = torch.tensor(member.predicted, dtype=torch.int32)
            index[i, : len(member.rows)] = torch.tensor(member.rows) + i * self.window
        lengths = torch.tensor([len(member.rows) for member in self.members], dtype=torch.int32)
        return predict.view(-1).as_subclass(self.e.on_gpu), lengths, index

    def _drafter(self, _: Any) -> Any:
        """The drafter's forward: a row holds the feature that it is made from."""
        torch, features = self.e.torch, self.batch.spec_info.hidden_states
        self.draft_kv[self.batch.out_cache_loc, 0, 0] = features[:, 0]
        output = SimpleNamespace(next_token_logits=torch.zeros((len(features), 2)), hidden_states=features)
        return SimpleNamespace(logits_output=output)

    # ---- the state after

    def _state(self, i: int, result: Any) -> CommittedState:
        req, member, reason = self.reqs[i], self.members[i], self.reqs[i].finished_reason
        owned = req.owned_kv_len()
        output = list(req.output_ids_through_stop)
        held = self.slots[i, :owned].copy()
        waiting = (member.prompt + output)[owned:]
        finished = req.finished()
        draft_kv = None
        if member.case.state.draft_kv is not None:
            draft_kv = NOT_SHOWN if finished else self.draft_kv[held, 0, 0].numpy()
        following = result.next_draft_input
        return CommittedState(
            prompt=np.array(list(req.origin_input_ids), dtype=np.int64),
            output=np.array(output, dtype=np.int64),
            kv=self._kv(held),
            features=NOT_SHOWN if finished else np.array(req.hidden_states, dtype=np.float64).reshape(-1),
            pending=(waiting[0] if waiting else None) if finished else int(following.bonus_tokens[i]),
            finished=finished,
            seed=NOT_SHOWN if finished else float(following.hidden_states[i, 0]),
            freed=NOT_SHOWN,
            finish_reason=reason and reason.to_json()["type"],
            draft_kv=draft_kv,
        )

    def _kv(self, held: Any) -> Any:
        keys, values = self.pool.k_buffer[0][held, 0, 0].numpy(), self.pool.v_buffer[0][held, 0, 0].numpy()
        return np.where(keys == values, keys, np.nan)
