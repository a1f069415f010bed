"""vLLM's sampler of the V2 model runner, its Triton kernels executed by Triton's interpreter.

The code under test is `vllm.v1.worker.gpu.spec_decode.rejection_sampler.RejectionSampler`, called as the model runner
calls it, with a real `Sampler`: the drafts gathered from the input ids, the sampling parameters applied, and
`rejection_sample`. Two variants, each with its own `DECLARATION` and the operations below:

- `adapters.vllm:v2`: drafts are tested one by one (`rejection_sample_method="standard"`).
- `adapters.vllm:v2_block`: block verification of Sun et al. (`rejection_sample_method="block"`), which weighs all
  drafts of a request before it decides how many are accepted.

Requests of `verify_greedy` have the temperature 0, the others the temperature 1; no other sampling parameter is set,
so the step that applies them changes nothing.

What is converted, and nothing else:
- cases to the model runner's batch: [K+1 rows of each member, V] in float32, input ids that begin with the token
  sampled last (id 0, never read), a prompt of one token, request states in the order in which vLLM hands them out.
  One engine call for all members of one vocabulary size and one kind of proposal, since a batch has one drafter; the
  order of the list is kept.
- laws to logits: log(p) in float64, rounded to float32, −inf for 0, for the target's rows and the draft's. Point
  proposals have no draft logits ("one-hot").
- `num_sampled` and the sampled row to `Decision`: the path is as long as the number less one, the frontier is the
  last token counted; what the row holds behind it is ignored.
- seeds: vLLM derives all randomness of a request from its seed and its position. The seed is a hash of (seed, index
  in the list), or of the coin `frontier`; the position is that of a first generated token. So a member's decision
  does not depend on the members beside it, but on where it stands in the list.
- accept coins take the place of Triton's `rand`, rounded towards zero to float32; that vLLM raises a coin below
  2⁻³¹ to 2⁻³¹ stays in force. Rejected and bonus tokens are drawn by a race of Gumbel noise, so no uniform can
  decide them: the coin `frontier` seeds the request instead.

`adapters.vllm_interpreter` says what is added to the interpreter. A batch in which nobody has a draft goes through
the same code, where the model runner would take the bare `Sampler`.

Not applicable: trees that are no chains, and cases whose arrays do not fill K+1 rows of V.

At the first call the adapter sets what `adapters.vllm` sets, and imports `vllm.v1.worker.cpu.shm`, with which vLLM
itself prepares torch for this model runner on a CPU. It shares a process with `adapters.vllm:triton` only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

from adapters import vllm_interpreter
from adapters.interface import Arithmetic, Declaration, Deviation
from adapters.vllm_cases import chain, check_coins, frontier_seeds, logits, request_seeds, version
from adapters.vllm_engine import engine
from oracle.types import Coins, Decision, VerifyCase

_PROMPT = 1
"""Tokens before the one sampled last: positions start behind them."""


class _Variant:
    """A namespace with the operations; `--impl=adapters.vllm:<name>`."""

    def __init__(self, declaration: Declaration, method: str) -> None:
        self.DECLARATION = declaration
        self._method = method

    def verify_greedy(self, cases: Sequence[VerifyCase]) -> list[Decision]:
        return _verify(self._method, cases, 0.0, request_seeds(0, len(cases)), None)

    def verify_sampled(self, cases: Sequence[VerifyCase], coins: Sequence[Coins]) -> list[Decision]:
        check_coins(cases, coins)
        return _verify(self._method, cases, 1.0, frontier_seeds(coins), coins)

    def verify_random(self, cases: Sequence[VerifyCase], seed: int) -> list[Decision]:
        return _verify(self._method, cases, 1.0, request_seeds(seed, len(cases)), None)


def _verify(
    method: str,
    cases: Sequence[VerifyCase],
    temperature: float,
    seeds: np.ndarray,
    coins: Sequence[Coins] | None,
) -> list[Decision]:
    """One engine call for each vocabulary size and kind of proposal."""
    drafts = [chain(case) for case in cases]
    calls: dict[tuple[int, bool], list[int]] = {}
    for i, case in enumerate(cases):
        calls.setdefault((np.shape(case.target_probs)[1], case.proposal != "point"), []).append(i)
    decisions: dict[int, Decision] = {}
    for (vocabulary, has_rows), members in calls.items():
        batch = _Batch(
            vocabulary,
            [drafts[i] for i in members],
            [cases[i].target_probs for i in members],
            [cases[i].draft_probs for i in members] if has_rows else None,
            temperature,
            seeds[members].view(np.int64).tolist(),
        )
        accept = None if coins is None else [np.asarray(coins[i].accept) for i in members]
        for i, row in zip(members, batch.published(method, accept), strict=True):
            decisions[i] = Decision(tuple(range(len(row) - 1)), row[-1] if row else -1)
    return [decisions[i] for i in range(len(cases))]


class _Batch:
    """One engine call: its requests in vLLM's states, and their rows in flat tensors."""

    def __init__(
        self,
        vocabulary: int,
        drafts: Sequence[list[int]],
        target: Sequence[np.ndarray],
        draft: Sequence[np.ndarray | None] | None,
        temperature: float,
        seeds: list[int],
    ) -> None:
        self.vocabulary = vocabulary
        self.drafts = drafts
        self.target = target
        self.draft = draft
        self.temperature = temperature
        self.seeds = seeds
        self.steps = max(1, *(len(tokens) for tokens in drafts))

    def published(self, method: str, accept: Sequence[np.ndarray] | None) -> list[list[int]]:
        """The tokens that each request publishes."""
        engine("triton")
        import torch
        import vllm.v1.worker.cpu.shm  # noqa: F401
        from vllm.v1.worker.gpu.spec_decode.rejection_sampler import RejectionSampler

        with torch.inference_mode(), np.errstate(all="ignore"):
            sampler, states = self._sampler(torch)
            configuration = SimpleNamespace(
                num_speculative_tokens=self.steps, enable_adaptive_verification=False, rejection_sample_method=method
            )
            verifier = RejectionSampler(sampler, configuration, torch.device("cpu"))
            rows = torch.from_numpy(logits(np.concatenate([np.asarray(t, dtype=np.float64) for t in self.target])))
            batch, draft_logits = self._input_batch(torch, states), self._draft_logits(torch, states)
            with _injected(accept):
                output = verifier(rows, batch, draft_logits)
        counts = output.num_sampled.tolist()
        return [row[:count] for row, count in zip(output.sampled_token_ids.tolist(), counts, strict=True)]

    def _sampler(self, torch: Any) -> tuple[Any, list[int]]:
        """The sampler with all requests added, and the state that each one was given."""
        from vllm.sampling_params import SamplingParams
        from vllm.v1.worker.gpu.sample.sampler import Sampler
        from vllm.v1.worker.gpu.states import RequestState

        count, device = len(self.drafts), torch.device("cpu")
        length = _PROMPT + 1 + self.steps
        requests = RequestState(count, length, count * length, self.steps, self.vocabulary, device)
        configuration = SimpleNamespace(reasoning_config=None)
        sampler = Sampler(configuration, count, self.vocabulary, device, requests, num_speculative_tokens=self.steps)
        states = []
        for i in range(count):
            requests.add_request(str(i), _PROMPT, [0] * _PROMPT, _PROMPT, length)
            states.append(requests.req_id_to_index[str(i)])
            sampler.add_request(states[i], SamplingParams(temperature=self.temperature, seed=self.seeds[i]))
        requests.prefill_len.copy_to_uva()
        sampler.apply_staged_writes()
        return sampler, states

    def _input_batch(self, torch: Any, states: Sequence[int]) -> Any:
        """What the sampler reads of the model runner's batch."""
        counts = np.array([len(tokens) + 1 for tokens in self.drafts], dtype=np.int32)
        ends = np.cumsum(counts, dtype=np.int32)
        local = np.concatenate([np.arange(count, dtype=np.int32) for count in counts])
        index = np.array(states, dtype=np.int64)
        edges = np.concatenate([np.zeros(1, dtype=np.int32), ends])
        lengths = torch.from_numpy(_PROMPT + counts)
        return SimpleNamespace(
            num_reqs=len(counts),
            idx_mapping=torch.from_numpy(index),
            idx_mapping_np=index,
            expanded_idx_mapping=torch.from_numpy(np.repeat(index, counts)),
            expanded_local_pos=torch.from_numpy(local),
            input_ids=torch.from_numpy(np.array([t for ids in self.drafts for t in (0, *ids)], dtype=np.int32)),
            positions=torch.from_numpy(local.astype(np.int64) + _PROMPT),
            logits_indices=torch.arange(int(ends[-1])),
            cu_num_logits=torch.from_numpy(edges),
            cu_num_logits_np=edges,
            seq_lens=lengths,
            seq_lens_cpu_upper_bound=lengths,
        )

    def _draft_logits(self, torch: Any, states: Sequence[int]) -> Any:
        """float32 [requests, steps, V], zero where no draft was made; None for point proposals."""
        if self.draft is None:
            return None
        cached = np.zeros((len(states), self.steps, self.vocabulary), dtype=np.float32)
        for state, tokens, rows in zip(states, self.drafts, self.draft, strict=True):
            cached[state, : len(tokens)] = logits(np.asarray(rows, dtype=np.float64)[: len(tokens)])
        return torch.from_numpy(cached)


@contextmanager
def _injected(accept: Sequence[np.ndarray] | None) -> Iterator[None]:
    """While it lasts, Triton's uniforms are the coins given, if any: one program a request, one position a draft."""
    if accept is None:
        yield
        return
    import triton.language as tl

    def rand(seed: Any, position: Any, *args: Any) -> Any:
        coin = float(accept[int(tl.program_id(0))][int(position) - _PROMPT])
        rounded = np.float32(coin)
        if float(rounded) > coin:
            rounded = np.nextafter(rounded, np.float32(0))
        return vllm_interpreter.scalar(rounded, tl.float32)

    original = tl.rand
    tl.rand = rand
    try:
        yield
    finally:
        tl.rand = original


def _declare(name: str, conventions: dict[str, str], deviations: tuple[Deviation, ...]) -> Declaration:
    return Declaration(
        name=name,
        version=version(),
        links=(
            "https://github.com/vllm-project/vllm/blob/main/vllm/v1/worker/gpu/spec_decode/rejection_sampler.py",
            "https://github.com/vllm-project/vllm/blob/main/vllm/v1/worker/gpu/spec_decode/rejection_sampler_utils.py",
        ),
        conventions={"frontier_coin": "own", **conventions},
        arithmetic=Arithmetic(dtype="float32", coin_dtype="float32", via_logits=True, draft_via_logits=True),
        cost={"verify_greedy": 6e-3, "verify_sampled": 1.5e-2, "verify_random": 2e-2},
        promises=("seed", "batch_independent"),
        deviations=deviations,
    )


_BY_ARGMAX = ("4164c5401c40", "54112da8b1ca")
_BY_COINS = ("d2b2c6286fc6", "958f0575baab", "346cd0671afa")
"""Golden cases with NaN."""
_NAN = "NaN rows are decided like others: a comparison with NaN rejects, and argmax of NaN is a token"
_NAN_IN_BLOCK = "NaN rows are decided like others: min(NaN, 0) is 0, so the draft behind NaN counts as certain"
_EMPTY = (
    "logarithms in float32 reject a draft with p = q < 1/4 at the largest coins, and argmax of the empty residual is "
    "token 0, massless or not"
)

v2 = _Variant(
    _declare(
        "vllm v2 (interpreted)",
        {"coin_scheme": "per_node", "accept_operator": "<"},
        (
            Deviation("ACCEPTANCE-108", _NAN, witness="nan_at_the_root", fixtures=(*_BY_ARGMAX, *_BY_COINS)),
            Deviation("ACCEPTANCE-304", _EMPTY, witness="no_residual_left_to_logarithms"),
        ),
    ),
    "standard",
)
v2_block = _Variant(
    _declare(
        "vllm v2 block (interpreted)",
        {"coin_scheme": "block"},
        (Deviation("ACCEPTANCE-108", _NAN_IN_BLOCK, witness="nan_at_the_root", fixtures=_BY_ARGMAX),),
    ),
    "block",
)
