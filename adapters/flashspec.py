"""flashspec: the steps of its decoding loop that accept and reject drafts, on a CPU.

The code under test is what `SpeculativeEngine` calls when it decodes one sequence, each of it batched:
- `flashspec.sampling.greedy.greedy_step` (around `greedy_verify`) for `verify_greedy`, on the argmax that
  `TargetModel.verify_greedy` takes;
- `flashspec.sampling.rejection.rejection_step` for drafts that are sampled from a model;
- `flashspec.sampling.rejection.rejection_step_onehot` for point proposals, which its lookup drafter makes.

`rejection_sample`, the step of its other loop, has no token for a round in which everything is accepted: the
loop draws it inline, so there is no function that gives a whole decision. `verify_tokens_reference` answers
with the accept mask alone. Neither is called. `publish` runs a round of the loop: see `adapters.flashspec_publish`.

What is converted, and nothing else:
- laws to log-probabilities: log(p) in float64, rounded to float32, −inf for 0, NaN for a negative number;
- a list of cases to batches: drafts of a model come in one number a call, so there is one call for each
  vocabulary size and number of drafts; the lookup drafter says how many of its columns are proposed
  (`draft_len`), so point proposals, and greedy cases, of one vocabulary size share a call. Behind its end a
  member is filled with token 0, the coin 0.5 and copies of its last row. The order of the list is kept;
- a case without drafts to a row whose `draft_len` is 0, whatever its proposal: that is the loop's plain step;
- the result [accepted, next token] to `Decision`;
- for `TargetModel.verify_greedy`, the logarithms to the logits of a model: the method runs on a stand-in that
  has these rows and no model.

`verify_random` seeds one torch generator a call. `verify_sampled` puts the coins in the place of `torch.rand`
and `torch.multinomial` while a step runs: the first returns the accept coins in float32, the second first lets
the real one judge the rows, then picks the first token v with coin < cumsum(row)[v] in the dtype of the row
(the last token of positive mass where rounding leaves none). Coins that round to one are not applicable: no
coin of torch is as large.

Not applicable: trees that are no chains, siblings, and cases whose arrays do not fill K+1 rows of V.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from adapters import flashspec_publish
from adapters.interface import AdapterError, Arithmetic, Declaration, Deviation, NotApplicable
from oracle.types import Coins, CommittedState, Decision, PublishCase, VerifyCase


def _version() -> str:
    try:
        return importlib.metadata.version("flashspec")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


DECLARATION = Declaration(
    name="flashspec",
    version=_version(),
    links=("https://github.com/Mattral/FlashSpec",),
    conventions={"coin_scheme": "per_node", "frontier_coin": "inverse_cdf", "accept_operator": "<"},
    arithmetic=Arithmetic(dtype="float32", coin_dtype="float32", via_logits=True, draft_via_logits=True),
    cost={"verify_greedy": 1e-4, "verify_sampled": 1e-4, "verify_random": 1e-4, "publish": 4e-3},
    promises=("seed",),
    deviations=(
        Deviation(
            "ACCEPTANCE-108",
            "greedy: argmax takes NaN for the largest, so the first NaN of a row is published as its token",
            witness="nan_at_the_root",
            fixtures=("4164c5401c40", "54112da8b1ca"),
        ),
        Deviation(
            "ACCEPTANCE-108",
            "a NaN in the draft row rejects the draft, and the token then comes from the target row; "
            "a NaN in a target row is refused by torch.multinomial",
            witness="nan_in_the_draft_row",
            fixtures=("958f0575baab",),
        ),
        *flashspec_publish.DEVIATIONS,
    ),
)


def verify_greedy(cases: Sequence[VerifyCase]) -> list[Decision]:
    """Decide each case by `greedy_step`, one call for each vocabulary size."""
    code = _implementation()
    return _in_calls(cases, _vocabulary, lambda members: _greedy_step(code, [cases[i] for i in members]))


def verify_random(cases: Sequence[VerifyCase], seed: int) -> list[Decision]:
    """Decide each case with one torch generator, seeded once."""
    code = _implementation()
    generator = code.torch.Generator().manual_seed(seed)
    return _in_calls(cases, _kind, lambda members: _sampled_step(code, [cases[i] for i in members], generator))


def verify_sampled(cases: Sequence[VerifyCase], coins: Sequence[Coins]) -> list[Decision]:
    """Decide each case with the coins given, put in the place of torch's draws."""
    code = _implementation()
    if len(cases) != len(coins):
        raise AdapterError(f"{len(cases)} cases have {len(coins)} coins")
    highest = max((max(np.max(coin.accept, initial=0), coin.frontier) for coin in coins), default=0)
    if np.float32(highest) == 1:
        raise NotApplicable("a coin is a float32 below one; one of these rounds to one")

    def step(members: Sequence[int]) -> Any:
        with _injected(code.torch, [coins[i] for i in members]):
            return _sampled_step(code, [cases[i] for i in members], code.torch.Generator())

    return _in_calls(cases, _kind, step)


def publish(cases: Sequence[PublishCase]) -> list[CommittedState]:
    """A round of each request: see `adapters.flashspec_publish`."""
    return [flashspec_publish.publish(case) for case in cases]


@dataclass(frozen=True)
class _Code:
    torch: Any
    greedy: Any
    rejection: Any
    target_model: Any


def _implementation() -> _Code:
    try:
        import torch
        from flashspec.engine.verifier import TargetModel
        from flashspec.sampling import greedy, rejection
    except ImportError as error:
        raise AdapterError(
            f"adapters.flashspec needs `pip install -r adapters/requirements/flashspec.txt` ({error})"
        ) from error
    return _Code(torch, greedy, rejection, TargetModel)


def _vocabulary(case: VerifyCase) -> tuple[int, ...]:
    _ensure_chain(case)
    return np.shape(case.target_probs)[1:]


def _kind(case: VerifyCase) -> tuple[int, ...]:
    """What members of one call have in common: the vocabulary, and the number of drafts where a model drafted."""
    return (*_vocabulary(case), 0 if case.proposal == "point" else len(case.token))


def _in_calls(
    cases: Sequence[VerifyCase], kind: Callable[[VerifyCase], tuple[int, ...]], step: Callable[[list[int]], Any]
) -> list[Decision]:
    """One step for the members of each kind; their decisions in the order of `cases`."""
    calls: dict[tuple[int, ...], list[int]] = {}
    for i, case in enumerate(cases):
        calls.setdefault(kind(case), []).append(i)
    decisions: dict[int, Decision] = {}
    for members in calls.values():
        for i, (accepted, frontier) in zip(members, step(members).tolist(), strict=True):
            decisions[i] = Decision(tuple(range(accepted)), frontier)
    return [decisions[i] for i in range(len(cases))]


def _greedy_step(code: _Code, cases: Sequence[VerifyCase]) -> Any:
    ids, rows, lengths = _filled(code.torch, cases)
    logits = SimpleNamespace(_device=rows.device, _verify_rows=lambda drafted: rows)
    return code.greedy.greedy_step(ids, code.target_model.verify_greedy(logits, ids), lengths)


def _sampled_step(code: _Code, cases: Sequence[VerifyCase], generator: Any) -> Any:
    ids, rows, lengths = _filled(code.torch, cases)
    if cases[0].proposal == "point" or not len(cases[0].token):
        return code.rejection.rejection_step_onehot(ids, rows, lengths, generator=generator)
    drafted = np.stack([np.asarray(case.draft_probs)[: len(case.token)] for case in cases])
    return code.rejection.rejection_step(ids, _logarithms(code.torch, drafted), rows, generator=generator)


def _filled(torch: Any, cases: Sequence[VerifyCase]) -> tuple[Any, Any, Any]:
    """Drafted ids [B, K], log-probabilities of the target [B, K+1, V] and the number of drafts of each member."""
    counts = [len(case.token) for case in cases]
    width = max(1, *counts)
    ids = np.zeros((len(cases), width), dtype=np.int64)
    rows = []
    for i, (case, count) in enumerate(zip(cases, counts)):
        ids[i, :count] = case.token
        rows.append(np.pad(np.asarray(case.target_probs), ((0, width - count), (0, 0)), mode="edge"))
    return torch.from_numpy(ids), _logarithms(torch, np.stack(rows)), torch.tensor(counts, dtype=torch.int64)


def _logarithms(torch: Any, laws: np.ndarray) -> Any:
    with np.errstate(divide="ignore", invalid="ignore"):
        return torch.from_numpy(np.log(laws.astype(np.float64)).astype(np.float32))


def _ensure_chain(case: VerifyCase) -> None:
    """`NotApplicable` where a batch of rows cannot hold the case."""
    tokens = np.asarray(case.token)
    if tokens.ndim != 1 or (tokens.size and tokens.dtype.kind not in "iu"):
        raise NotApplicable("drafts are a tensor of integer ids")
    count = len(tokens)
    if np.asarray(case.parent).tolist() != list(range(-1, count - 1)):
        raise NotApplicable("the steps verify one chain a row; they have no notion of a tree")
    shape = np.shape(case.target_probs)
    if len(shape) != 2 or shape[0] != count + 1:
        raise NotApplicable(f"a row with {count} drafts has {count + 1} laws, not {shape}")
    if case.proposal not in ("point", "iid", "without_replacement"):
        raise NotApplicable("a drafter is a model or a lookup; there is no notion of another proposal")
    drafted_from = None if case.draft_probs is None else np.shape(case.draft_probs)
    if case.proposal != "point" and drafted_from != shape:
        raise NotApplicable(f"a sampled proposal has draft rows of shape {shape}, not {drafted_from}")


@contextmanager
def _injected(torch: Any, coins: Sequence[Coins]) -> Iterator[None]:
    """While it lasts, torch's two draws return what the coins say."""
    rand, multinomial = torch.rand, torch.multinomial
    spent = [np.asarray(coin.accept, dtype=np.float64) for coin in coins]

    def accept_coins(shape: Sequence[int], *args: Any, **kwargs: Any) -> Any:
        drawn = [np.pad(row, (0, shape[1] - len(row)), constant_values=0.5) for row in spent]
        return torch.tensor(np.stack(drawn), dtype=kwargs["dtype"]).reshape(shape)

    def frontier_coins(laws: Any, *args: Any, **kwargs: Any) -> Any:
        multinomial(laws, *args, **kwargs)  # refuses rows that are no laws, as it does without coins
        tossed = torch.tensor([[coin.frontier] for coin in coins], dtype=laws.dtype)
        reached = tossed < laws.cumsum(dim=-1)
        last = laws.shape[-1] - 1 - (laws > 0).flip(-1).int().argmax(dim=-1)
        return torch.where(reached.any(dim=-1), reached.int().argmax(dim=-1), last)[:, None]

    torch.rand, torch.multinomial = accept_coins, frontier_coins
    try:
        yield
    finally:
        torch.rand, torch.multinomial = rand, multinomial
