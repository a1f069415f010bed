"""Hugging Face transformers: assisted generation, its logits processors, and its accept/reject step, a chain at a time.

The code under test is `transformers.generation.utils._speculative_sampling` (`verify_random`, `verify_sampled`) and
the processors that `GenerationMixin._get_logits_processor` makes (`warp`). The greedy match is written inline in the
decoding loop, so there is no function that `verify_greedy` could call. The whole loop, `generate`, is in
`adapters.transformers_generate`.

What is converted, and nothing else:
- laws to logits: log(p) in float64, −inf for 0, NaN for a negative number; a point proposal's candidate
  logits are 0 at the drafted token and −inf elsewhere, whose softmax is exactly one-hot;
- batch of one: the function knows no batch, so members run one after the other, each behind a prompt of
  one token (id 0, never read);
- `Decision.path` is as long as the function's `n_matches`; drafts and returned tokens are compared, and a
  result whose two halves contradict each other is an error (`InconsistentResult`), not a decision.

`verify_random` calls `torch.manual_seed(seed)` once a call, since the function draws from torch's global
generator. `verify_sampled` puts the coins in the place of `torch.rand_like` and `torch.multinomial` while
the function runs: the first returns the accept coins, the second first lets the real one judge the row,
then picks the first token v with coin < cumsum(row)[v] in the dtype of the row (the last token of positive
mass where rounding leaves none). A coin nobody asks for is not read.

`warp` sets do_sample, temperature, top_k, top_p and min_p of a `GenerationConfig` to what the case says (top_k's own
default is 50) and nothing else, so temperature 1, top_k 0 and top_p 1 make no processor. The rows are those of one
candidate sequence: the processors run row by row, each behind ids of its length (id 0, never read), then
`softmax(dim=-1)`, as `_assisted_decoding` does it. It casts the rows to float32 first; here they stay float64, which
the processors keep. Not applicable: temperature 0, which transformers refuses in favour of do_sample=False, and
parameters that differ from row to row, since a call of `generate` has one value for all of its rows.

Verification is not applicable to trees that are no chains, siblings, and rounds without drafts: the loop
reaches the function only "if do_sample and candidate_logits is not None", and the candidate generators hand
out "input_ids, None" when they draft nothing, so such a round is a plain draw elsewhere.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from adapters.interface import AdapterError, Arithmetic, Declaration, Deviation, NotApplicable
from adapters.transformers_generate import ENGINE, generate, next_law
from oracle.types import Coins, Decision, VerifyCase, WarpCase

__all__ = ["DECLARATION", "InconsistentResult", "generate", "next_law", "verify_random", "verify_sampled", "warp"]


def _version() -> str:
    try:
        return importlib.metadata.version("transformers")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


DECLARATION = Declaration(
    name="transformers",
    version=_version(),
    links=(
        "https://github.com/huggingface/transformers/blob/main/src/transformers/generation/utils.py",
        "https://huggingface.co/docs/transformers/generation_strategies",
    ),
    conventions={
        "coin_scheme": "per_node",
        "frontier_coin": "inverse_cdf",
        "accept_operator": "<=",
        "filter_order": "temperature,top_k,top_p,min_p",
        "top_k_ties": "keep",
    },
    arithmetic=Arithmetic(dtype="float64", coin_dtype="float64", via_logits=True, draft_via_logits=True),
    cost={"verify_sampled": 2.5e-4, "verify_random": 2e-4, "warp": 1e-3, "generate": 2e-2, "next_law": 6e-3},
    promises=("seed",),
    generators=("torch",),
    engine=ENGINE,
    deviations=(
        Deviation(
            "ACCEPTANCE-109",
            "a draft id of −1 indexes the last row entry and is accepted and published as a token",
            witness="padding_read_as_the_last_token",
            fixtures=("64a3540ebb6c",),
        ),
        Deviation(
            "ACCEPTANCE-302",
            "the accept test is r <= p/q, so the coin zero accepts a draft that the target rules out",
            witness="impossible_draft_at_coin_zero",
            fixtures=("1d8b1682f7cd", "897c0aabf27d"),
        ),
        Deviation(
            "ACCEPTANCE-304",
            "an empty residual is divided by its own sum, and torch.multinomial refuses the NaN row",
            witness="no_residual_left_behind_a_softmax",
        ),
        Deviation(
            "ACCEPTANCE-606",
            "the same empty residual, met coin by coin",
            witness="no_residual_left_behind_a_softmax",
        ),
        Deviation(
            "ACCEPTANCE-1011",
            "top-p sorts upwards and removes from below, so of tokens tied at the cut the higher ids stay",
            witness="tied_at_the_cut_of_a_nucleus",
            fixtures=("e59875b544a8",),
        ),
    ),
)


class InconsistentResult(RuntimeError):
    """The function's two return values, tokens and number of matches, contradict each other."""


def verify_random(cases: Sequence[VerifyCase], seed: int) -> list[Decision]:
    """Decide each case with torch's global generator, seeded once."""
    torch, speculative_sampling = _implementation()
    torch.manual_seed(seed)
    return [_decide(torch, speculative_sampling, case) for case in cases]


def verify_sampled(cases: Sequence[VerifyCase], coins: Sequence[Coins]) -> list[Decision]:
    """Decide each case with the coins given, put in the place of torch's draws."""
    torch, speculative_sampling = _implementation()
    decisions = []
    for case, coin in zip(cases, coins, strict=True):
        with _injected(torch, coin):
            decisions.append(_decide(torch, speculative_sampling, case))
    return decisions


def warp(case: WarpCase) -> np.ndarray:
    """The rows as assisted generation samples them, float64 of the shape of the logits."""
    torch, _ = _implementation()
    from transformers.generation.configuration_utils import GenerationConfig
    from transformers.generation.utils import GenerationMixin

    given = {name: _one_value(name, getattr(case, name)) for name in ("temperature", "top_k", "top_p", "min_p")}
    if given["temperature"] == 0:
        raise NotApplicable(
            "a temperature is strictly positive; greedy decoding is do_sample=False, without processors"
        )
    made: Any = GenerationConfig
    configuration = made(
        do_sample=True,
        temperature=float(given["temperature"]),
        top_k=int(given["top_k"]),
        top_p=float(given["top_p"]),
        min_p=float(given["min_p"]),
    )
    mixin: Any = GenerationMixin()
    processors = mixin._get_logits_processor(configuration)
    logits = torch.tensor(np.asarray(case.logits, dtype=np.float64))
    rows = logits.reshape(1, -1, logits.shape[-1])
    for i in range(rows.shape[1]):
        rows[:, i, :] = processors(torch.zeros((1, i + 1), dtype=torch.int64), rows[:, i, :])
    warped: np.ndarray = rows.softmax(dim=-1).reshape(logits.shape).numpy()
    return warped


def _one_value(name: str, values: Any) -> Any:
    different = np.unique(np.asarray(values))
    if len(different) != 1:
        raise NotApplicable(f"a call of generate has one {name} for all of its rows")
    return different[0]


def _implementation() -> tuple[Any, Callable[..., Any]]:
    try:
        import torch
        from transformers.generation.utils import _speculative_sampling
    except ImportError as error:
        raise AdapterError(
            f"adapters.transformers needs `pip install -r adapters/requirements/transformers.txt` ({error})"
        ) from error
    return torch, _speculative_sampling


def _decide(torch: Any, speculative_sampling: Callable[..., Any], case: VerifyCase) -> Decision:
    drafted = _chain(case)
    count = len(drafted)
    target = np.asarray(case.target_probs, dtype=np.float64)
    if case.proposal == "point":
        candidate = np.full((count, target.shape[1]), -np.inf)
        candidate[np.arange(count), drafted] = 0.0
    else:
        candidate = _logits(np.asarray(case.draft_probs, dtype=np.float64)[:count])
    tokens, matches = speculative_sampling(
        torch.tensor([[0, *drafted]], dtype=torch.int64),
        torch.from_numpy(candidate)[None],
        count,
        torch.from_numpy(_logits(target))[None],
    )
    valid = tokens.tolist()[0]
    accepted = int(matches)
    if len(tokens) != 1 or valid[:-1] != drafted[:accepted]:
        raise InconsistentResult(f"n_matches is {accepted} of drafts {drafted}, but valid_tokens is {tokens.tolist()}")
    return Decision(tuple(range(accepted)), valid[-1])


def _chain(case: VerifyCase) -> list[int]:
    """The drafted tokens, as they are; `NotApplicable` where the function cannot be told of the case."""
    tokens = np.asarray(case.token)
    parents = np.asarray(case.parent).tolist()
    if tokens.ndim != 1 or (tokens.size and tokens.dtype.kind not in "iu"):
        raise NotApplicable("drafts are a tensor of integer ids")
    if parents != list(range(-1, len(tokens) - 1)):
        raise NotApplicable("_speculative_sampling verifies one chain; it has no notion of a tree")
    if not len(tokens):
        raise NotApplicable(
            "_assisted_decoding calls the function only `if do_sample and candidate_logits is not None`, and "
            "candidate generators return `input_ids, None` where they draft nothing"
        )
    if case.proposal not in ("point", "iid", "without_replacement"):
        raise NotApplicable("the function takes draft rows; it has no notion of another proposal")
    if case.proposal != "point" and case.draft_probs is None:
        raise NotApplicable("the function takes draft rows; a sampled proposal without them cannot be expressed")
    drafted: list[int] = tokens.tolist()
    return drafted


def _logits(rows: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        logits: np.ndarray = np.log(rows)
    return logits


@contextmanager
def _injected(torch: Any, coins: Coins) -> Iterator[None]:
    """While it lasts, torch's two draws return what the coins say."""
    rand_like, multinomial = torch.rand_like, torch.multinomial

    def accept_coins(like: Any, *args: Any, **kwargs: Any) -> Any:
        drawn = torch.tensor(np.asarray(coins.accept), dtype=kwargs.get("dtype") or like.dtype)
        return drawn.reshape(like.shape)

    def frontier_coin(law: Any, *args: Any, **kwargs: Any) -> Any:
        multinomial(law, *args, **kwargs)  # refuses a row that is no law, as it does without coins
        reached = (coins.frontier < law.cumsum(dim=-1))[0].nonzero()
        return reached[:1] if len(reached) else (law[0] > 0).nonzero()[-1:]

    torch.rand_like, torch.multinomial = accept_coins, frontier_coin
    try:
        yield
    finally:
        torch.rand_like, torch.multinomial = rand_like, multinomial
