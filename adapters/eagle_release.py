"""The package eagle-llm, EAGLE-1's static trees and their verification, `adapters.eagle:release`.

The code under test is `eagle.model.utils`: `generate_tree_buffers` (mask, positions and leaf table of a tree that is
given as rank paths), `generate_candidates`, `tree_decoding` (which makes positions absolute) and `evaluate_posterior`;
and `Model.sample` of `eagle.model.cnets`, which declares the law of sampled drafts. It verifies one request at a time.

What is converted, and nothing else:
- a parent vector to rank paths, the n-th child of a node being rank n, and rows back to the order of the case;
- a node's tokens to the rows of ten best tokens that the buffers index;
- rows leave without the root. `parent` is the nearest row that the mask lets a row see, `paths` is `retrieve_indices`
  without its root column, in the order that it has;
- laws to logits: log(p) in float64, rounded to float32, −inf for 0, and the processor of temperature 1. Drafts take the
  place of `torch.multinomial` in `sample`. Coins: as in `adapters.leaf_posterior`.

The whole engine, `generate`, is in `adapters.eagle_engine`.

Sampled drafts come from rows without replacement; of other kinds only those without siblings are the same thing. In
greedy decoding drafts have no law, so any kind is. Not applicable: trees without a node, more than ten siblings, twins.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import random
import warnings
from collections.abc import Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from adapters import clone_features, eagle_engine, eagle_publish, kv_tracers, leaf_posterior, topk_drafting
from adapters.grown_shape import layered
from adapters.interface import AdapterError, Arithmetic, Declaration, Deviation, NotApplicable
from oracle.types import (
    Coins,
    CommittedState,
    Decision,
    Flags,
    FlattenCase,
    FlatTree,
    Ids,
    MaskCase,
    PublishCase,
    VerifyCase,
)

_CODE = "https://github.com/SafeAILab/EAGLE/blob/v1/eagle/model"
RANKS = 10
"""`TOPK` of the package: how many tokens of each node it keeps."""


def _version() -> str:
    try:
        return importlib.metadata.version("eagle-llm")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


DECLARATION = Declaration(
    name="eagle-llm",
    version=_version(),
    links=("https://pypi.org/project/eagle-llm/1.2.1/", f"{_CODE}/utils.py"),
    conventions={
        "coin_scheme": "per_node",
        "frontier_coin": "inverse_cdf",
        "accept_operator": "<=",
        "root_in_verification": "yes",
        "draft_kv": "recomputed",
    },
    arithmetic=Arithmetic(dtype="float32", coin_dtype="float32", via_logits=True, draft_via_logits=True),
    cost={
        "flatten_tree": 1e-3,
        "tree_visibility": 1e-3,
        "tree_mask": 1e-3,
        "verify_greedy": 1e-3,
        "verify_sampled": 2e-3,
        "verify_random": 2e-3,
        "publish": 5e-3,
        "generate": 3e-2,
        "next_law": 3e-3,
    },
    generators=("python", "torch"),
    promises=("seed", "request_independent"),
    engine=eagle_engine.served(eagle_engine.STATIC_LEVELS, eagle_engine.SMALL),
    deviations=(
        *eagle_engine.deviations(f"{_CODE}/ea_model.py", several=False),
        Deviation(
            "TREE-604",
            "paths are sorted by what they hold, padding last",
            link=f"{_CODE}/utils.py",
            fixtures=("a8e9df62cc58", "1a727cf93a1b", "de6f9323747c", "ae6f4e02ed23"),
        ),
        Deviation(
            "ACCEPTANCE-108",
            "NaN rows are compared like others, and argmax of NaN is a token",
            link=f"{_CODE}/utils.py",
        ),
        Deviation(
            "ACCEPTANCE-302",
            "the accept test is r <= p/q, so the coin zero accepts a draft that the target rules out",
            witness="impossible_draft_at_coin_zero",
            fixtures=("1d8b1682f7cd", "897c0aabf27d"),
        ),
        Deviation(
            "ACCEPTANCE-603",
            "a draft with q = 0 is passed over (lossless for drafts that come from q)",
            witness="draft_of_no_draft_mass",
            fixtures=("b9dd20c46588", "bf287fea59bb"),
        ),
        *eagle_publish.DEVIATIONS_STATIC,
    ),
)


generate = eagle_engine.release_generate
next_law = eagle_engine.release_next_law


def flatten_tree(cases: Sequence[FlattenCase]) -> list[FlatTree]:
    """The buffers of each tree, its tokens by `generate_candidates`."""
    answers = []
    for case in cases:
        parent, token = topk_drafting.selected_rows(case)
        tree = _Static(parent)
        if tree.order != list(range(len(parent))):
            raise NotApplicable("rows are ordered by depth, then by the path of ranks")
        grown = topk_drafting.Grown(
            tree.candidates(token)[2][0].numpy(), tree.leaves, tree.mask, tree.buffers["tree_position_ids"].numpy()
        )
        package = _package()
        position = topk_drafting.decoded_positions(package.torch, vars(package.functions), grown, case.base)
        answers.append(topk_drafting.flat_tree(grown, position))
    return answers


def tree_visibility(parent: Ids) -> Flags:
    """`tree_attn_mask` without the root."""
    return _Static(topk_drafting.grown_parents(parent)).visible()[1:, 1:]


def tree_mask(cases: Sequence[MaskCase]) -> list[np.ndarray]:
    """`tree_attn_mask`, 1 = visible."""
    answers: list[np.ndarray] = []
    for case in cases:
        topk_drafting.plain_mask(case)
        answers.append(_Static(topk_drafting.grown_parents(case.parent)).visible())
    return answers


def verify_greedy(cases: Sequence[VerifyCase]) -> list[Decision]:
    """`evaluate_posterior` without a logits processor."""
    return [_greedy(case) for case in cases]


def verify_random(cases: Sequence[VerifyCase], seed: int) -> list[Decision]:
    """`evaluate_posterior` at temperature 1, and `torch.multinomial` of what it returns."""
    random.seed(seed)
    _package().torch.manual_seed(seed)
    return [_sampled(case, None) for case in cases]


def verify_sampled(cases: Sequence[VerifyCase], coins: Sequence[Coins]) -> list[Decision]:
    """The same, with the coins given."""
    return [_sampled(case, coin) for case, coin in zip(cases, coins, strict=True)]


def publish(cases: Sequence[PublishCase]) -> list[CommittedState]:
    """`eagenerate`, a round of each request: see `adapters.eagle_publish`."""
    return [eagle_publish.publish_static(case, _package().model, _drafter()) for case in cases]


class _Static:
    """The buffers of a tree, and its rows in the order of the case."""

    def __init__(self, above: list[int]) -> None:
        if not above:
            raise NotApplicable("a static tree has a node")
        self.order = layered(above)
        self.above = above
        paths: dict[int, list[int]] = {-1: []}
        self.groups: list[list[list[int]]] = []
        """Layer by layer, the children of each node that has any."""
        for node in self.order:
            path = paths[above[node]]
            if len(self.groups) == len(path):
                self.groups.append([])
            groups = self.groups[len(path)]
            if not groups or above[groups[-1][0]] != above[node]:
                groups.append([])
            groups[-1].append(node)
            paths[node] = [*path, len(groups[-1]) - 1]
        self.buffers = _package().functions.generate_tree_buffers([paths[node] for node in self.order], device="cpu")
        self.leaves: Ids = self.buffers["retrieve_indices"].numpy()
        self.mask: np.ndarray = self.buffers["tree_attn_mask"][0, 0].numpy()

    def visible(self) -> Flags:
        """The mask in the order of the case, the root first."""
        place = [0, *(self.order.index(node) + 1 for node in range(len(self.order)))]
        return np.asarray(self.mask != 0)[np.ix_(place, place)]

    def nodes(self) -> Ids:
        """The leaf table in rows of the case, root 0 and nodes from 1."""
        row = np.array([0, *(node + 1 for node in self.order), -1], dtype=np.int64)
        return row[self.leaves]

    def candidates(self, token: Sequence[int], probability: Any = None) -> Any:
        """`generate_candidates`: leaf table of tokens, of probabilities, and the tokens as rows."""
        torch = _package().torch
        rows = [group for layer in self.groups for group in layer]
        if max(map(len, rows)) > RANKS:
            raise NotApplicable(f"the {RANKS} best tokens of a node are kept")
        drafted = torch.full((len(rows), RANKS), -2)
        for i, group in enumerate(rows):
            drafted[i, : len(group)] = torch.tensor([token[node] for node in group])
        processor = None if probability is None else _processor()
        return _package().functions.generate_candidates(
            (drafted, probability),
            self.buffers["tree_indices"],
            self.buffers["retrieve_indices"],
            torch.zeros((1, 1), dtype=torch.int64),
            processor,
        )


@cache
def _package() -> Any:
    """torch and the two modules."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = SimpleNamespace(
                torch=importlib.import_module("torch"),
                functions=importlib.import_module("eagle.model.utils"),
                drafter=importlib.import_module("eagle.model.cnets"),
                model=importlib.import_module("eagle.model.ea_model"),
            )
    except ImportError as error:
        raise AdapterError(
            f"adapters.eagle:release needs what adapters/requirements/eagle_release.txt lists, see there ({error})"
        ) from error
    found.torch.set_num_threads(1)
    return found


@cache
def _drafter() -> Any:
    """A drafter of the package's own tree."""
    package = _package()
    with package.torch.random.fork_rng(devices=[]):
        model = package.drafter.Model(clone_features.tiny_config(kv_tracers.SMALL, kv_tracers.SMALL), bias=True)
    model.diff_device = False
    model.init_tree()
    return model


def _processor() -> Any:
    return _package().functions.prepare_logits_processor(temperature=1.0)


def _greedy(case: VerifyCase) -> Decision:
    tree = _Static(leaf_posterior.tree(case))
    cart, _, drafted = tree.candidates(np.asarray(case.token).tolist())
    best, accepted, last = _package().functions.evaluate_posterior(
        _logits(case, tree), cart, None, None, None, tree.buffers["p_indices"], drafted, tree.buffers["b_indices"]
    )
    return leaf_posterior.decision(tree.nodes(), int(best), int(accepted), last.argmax())


def _sampled(case: VerifyCase, coins: Coins | None) -> Decision:
    above = leaf_posterior.tree(case)
    if case.proposal == "point" or case.draft_probs is None:
        raise NotApplicable("where tokens are sampled, drafts are drawn from rows of the drafter")
    if case.proposal == "iid" and len(set(above)) < len(above):
        raise NotApplicable("siblings are drawn without replacement")
    package = _package()
    tree = _Static(above)
    probability, laws = _declared(case, tree)
    cart, declared, drafted = tree.candidates(np.asarray(case.token).tolist(), probability)
    posterior = leaf_posterior.Posterior(package.torch, vars(package.functions))
    with leaf_posterior.injected(posterior, case, coins):
        best, accepted, law = package.functions.evaluate_posterior(
            _logits(case, tree),
            cart,
            _processor(),
            declared,
            laws,
            tree.buffers["p_indices"],
            drafted,
            tree.buffers["b_indices"],
        )
        token = package.functions.torch.multinomial(law, 1)
    return leaf_posterior.decision(tree.nodes(), int(best), int(accepted), token)


def _declared(case: VerifyCase, tree: _Static) -> tuple[Any, list[Any]]:
    """What `Model.sample` declares of the case's drafts: [rows, ten], and a layer each, its laws [rows, V]."""
    package = _package()
    torch = package.torch
    rows = torch.from_numpy(_logarithms(case.draft_probs))
    probability, laws = [], []
    for layer in tree.groups:
        found = []
        for group in layer:
            tokens = torch.tensor([[int(case.token[node]) for node in group]])
            given = rows[tree.above[group[0]] + 1][None]
            _, drawn, law = _sample(package, given, tokens)
            probability.append(torch.nn.functional.pad(drawn[0], (0, max(RANKS - len(group), 0))))
            found.append(law)
        laws.append(torch.cat(found))
    return torch.stack(probability), laws


def _sample(package: Any, logits: Any, tokens: Any) -> Any:
    """`Model.sample`, which draws the tokens given."""
    module = package.drafter
    module.torch = leaf_posterior.Standing(package.torch, multinomial=lambda *_, **__: tokens)
    try:
        return module.Model.sample(None, logits, _processor(), k=tokens.shape[1])
    finally:
        module.torch = package.torch


def _logits(case: VerifyCase, tree: _Static) -> Any:
    """float32 [leaves, depth + 1, V], as `tree_decoding` gathers them; those of padding are the last row's."""
    rows = _logarithms(case.target_probs)[[0, *(node + 1 for node in tree.order)]]
    return _package().torch.from_numpy(rows[tree.leaves])


def _logarithms(rows: Any) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        found: np.ndarray = np.log(np.asarray(rows, dtype=np.float64)).astype(np.float32)
    return found
