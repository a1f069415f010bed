"""The golden vectors of losses: which cases are published, operation by operation, and of which clauses."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from conformance.fixtures.flags import UNCHANGED
from conformance.fixtures.golden import Flag, Golden
from conformance.losses import masked
from conformance.losses.cases import (
    ABOVE_THE_VOCABULARY,
    EDGE_LOGITS,
    MASKED_LOGITS,
    MASKED_TOPS,
    RESIDUALS,
    TIED_HEADS,
    TIED_LOGITS,
    edges,
)
from conformance.losses.large import LONG_HASS, WIDE_TOP, made, sixteenths
from conformance.losses.strategies import rows
from oracle.types import (
    DENOMINATORS,
    DIVERGENCES,
    GATES,
    GRADIENTS,
    REDUCTIONS,
    RESTRICTED_TARGETS,
    DistillCase,
    HassLossCase,
    RolloutLossCase,
    TopKCase,
)

_GITHUB = "https://github.com/"
ROLLOUT_VALUES: Mapping[str, tuple[str, ...]] = {
    "denominator": DENOMINATORS,
    "restricted_target": RESTRICTED_TARGETS,
    "gate": GATES,
    "divergence": DIVERGENCES,
    "reduction": REDUCTIONS,
    "denominator_epsilon": ("0", "1e-05", "0.5"),
    "step_decay": ("0.8", "0.9", "1.0", "given"),
}
"""Convention → the values that the published rollouts have; weights that are no powers of one number are "given"."""
_EFFECTS: Mapping[str, str] = {
    "denominator": "A step's mean is over the rows that count, the rows of its mask, or all rows.",
    "restricted_target": "The target's law on the draft vocabulary is renormalised there, or left as it is.",
    "gate": "Rows whose most probable target token has no draft id are left out, or no row is.",
    "divergence": "A row loses its cross-entropy, or that less the entropy of the target's law.",
    "reduction": "Steps are summed by their weights, or that is divided by their number.",
    "denominator_epsilon": "The epsilon is added to the denominator of every mean.",
    "step_decay": "The weight of step s is a power of this number; or the case gives weights that are none.",
    "draft_map": "The entries of d2t are added to the draft ids, or are the target ids themselves.",
    "rollout_gradient": "The loss of a step reaches the states that earlier steps fed into it, or stops there.",
}
FLAGS: Mapping[str, Flag] = {
    **{
        f"{name}={value}": Flag("convention", _EFFECTS[name])
        for name, values in (
            *ROLLOUT_VALUES.items(),
            ("draft_map", ("offset", "absolute")),
            ("rollout_gradient", GRADIENTS),
        )
        for value in values
    },
    "squared error": Flag(
        "fault",
        "A squared error stands for smooth-L1, or its two branches meet in the wrong place.",
        (f"{_GITHUB}NVIDIA-NeMo/Automodel/issues/2796",),
    ),
    "slope of log q": Flag(
        "fault",
        "The gradient stops at log q and lacks the drafter's own law.",
        (f"{_GITHUB}sgl-project/SpecForge/issues/563",),
    ),
    "nothing supervised": Flag(
        "fault",
        "A mean over no row is NaN, 0 or the loss of padding.",
        (f"{_GITHUB}radixark/miles/issues/2796",),
    ),
    "padding": Flag(
        "fault",
        "Rows that are not supervised count in the mean.",
        (f"{_GITHUB}SafeAILab/EAGLE/issues/340", f"{_GITHUB}radixark/miles/issues/2796"),
    ),
    "gated rows": Flag(
        "fault",
        "Rows behind the gate are counted, or open rows are left out.",
        (f"{_GITHUB}lightseekorg/TorchSpec/issues/186",),
    ),
    "order of the map": Flag(
        "fault",
        "A map of equal widths is taken for the identity, or target logits are gathered in ascending order.",
        (f"{_GITHUB}alibaba/rtp-llm/issues/1311", f"{_GITHUB}sgl-project/SpecForge/issues/534"),
    ),
    "offset map": Flag(
        "fault",
        "Offsets are read as target ids, or target ids as offsets.",
        (f"{_GITHUB}SafeAILab/EAGLE/issues/222",),
    ),
    "no number": Flag(
        "hostile",
        "NaN or +inf in a row that counts becomes a loss like any other.",
        (f"{_GITHUB}vllm-project/vllm/issues/55250",),
    ),
    "masked": Flag("edge", "A logit of −inf makes 0 · (−inf), or an impossible token that costs little."),
    "extreme": Flag("edge", "Exponentials of large logits overflow, and logarithms of small masses are −inf."),
    "narrow": Flag("edge", "Inputs that bfloat16 holds are summed in bfloat16."),
    "many rows": Flag("edge", "Blocks of rows are averaged apart, or summed in half precision."),
    "many steps": Flag("edge", "Room is written down for a few steps, or for a few tokens of a set."),
}


def plain(operation: str, seed: int, *sizes: int, **fields: Any) -> Any:
    """A case of numbers that are all different; sizes: rows, vocabulary, width; every row but the second counts."""
    return dataclasses.replace(made(operation, {}, seed, rows, *sizes), **fields)


def single(operation: str, case: Any, description: str, *clauses: int, flags: Iterable[str] = ()) -> Golden:
    """A case of a loss or a map, whose conventions are read off it; plain ones stand for the form of an answer, too."""
    form = (101, 102, 103) if UNCHANGED in flags else ()
    names = tuple(f"LOSSES-{clause}" for clause in sorted({*form, *clauses}))
    return Golden(operation, names, description, {"case": case}, (*conventions(operation, case), *flags))


def conventions(operation: str, case: Any) -> tuple[str, ...]:
    """The flags of the conventions that the answer rests on."""
    if operation == "draft_to_target":
        return (f"draft_map={case.convention}",)
    if operation == "state_gradient":
        return (f"rollout_gradient={case.gradient}",)
    if operation != "rollout_loss":
        rests = case.supervise.any() and not spoilt(operation, case)
        whole = ("denominator=supervised",) if not case.supervise.all() else ()
        return (*whole, "denominator_epsilon=0") if rests else ()
    values = {name: str(getattr(case, name)) for name in ("denominator", "restricted_target", "gate", "divergence")}
    values |= {"reduction": case.reduction, "denominator_epsilon": f"{case.denominator_epsilon:g}"}
    if len(case.draft_logits) > 1:
        values["step_decay"] = _decay(case)
    return tuple(f"{name}={value}" for name, value in values.items())


def spoilt(operation: str, case: Any) -> bool:
    """Whether a row that counts holds what is no number."""
    for name in masked.pairs(operation):
        values = getattr(case, name)
        counted = case.supervise if case.supervise.ndim == values.ndim - 1 else case.supervise.any(axis=0)
        if (np.isnan(values[counted]) | (values[counted] == np.inf)).any():
            return True
    return False


def _decay(case: RolloutLossCase) -> str:
    if case.step_weights is None:
        return "0.8"
    weights = list(case.step_weights)
    found = next(
        (d for d in ROLLOUT_VALUES["step_decay"][:-1] if weights == [float(d) ** s for s in range(len(weights))]), None
    )
    return found or "given"


def everywhere(operation: str, clauses: tuple[int, ...]) -> Iterator[Golden]:
    """What every loss is asked: rows that are not supervised, numbers that are none, narrow numbers.

    clauses: of the value, and of the gradient.
    """
    base = plain(operation, 11, 3, 4, 2)
    yield single(
        operation,
        masked.poisoned(base, operation, 4),
        "Rows that are not supervised hold NaN.",
        *clauses,
        901,
        flags=("poison", UNCHANGED),
    )
    yield single(
        operation,
        masked.emptied(base),
        "No row is supervised, so there is no loss and nothing moves.",
        902,
        flags=("nothing supervised",),
    )
    cases = list(masked.spoilt(base, operation))
    yield single(
        operation, cases[0][3], "A row that counts holds NaN on the drafter's side.", 903, flags=("no number",)
    )
    yield single(
        operation, cases[3][3], "A row that counts holds +inf on the target's side.", 903, flags=("no number",)
    )
    yield single(
        operation,
        made(operation, {}, 1, sixteenths, 3, 5, 3),
        "Every number is one that bfloat16 holds.",
        *clauses,
        1002,
        flags=("narrow",),
    )
    yield single(
        operation,
        masked.widened(plain(operation, 12, 2, 3, 2), operation, 6),
        "Two rows stand among seventeen that are not supervised.",
        *clauses,
        904,
        flags=("padding",),
    )


def _regressions() -> Iterator[Golden]:
    name = "feature_regression"
    told = (
        "Two residuals of beta 1 lie on either side of it.",
        "Two residuals are beta itself, where the branches meet.",
        "Beta is 2, and residuals lie on both sides of it.",
    )
    for case, words in zip(RESIDUALS, told):
        yield single(name, case, words, 201, 202, flags=("squared error",))
    yield single(name, plain(name, 2, 4, 1, 3), "Three of four rows count.", 201, 202, flags=("padding", UNCHANGED))
    yield from everywhere(name, (201, 202))
    yield single(name, edges(name, {})[0], "Residuals of 20 000 and more.", 201, 202, 1001, flags=("extreme",))
    yield single(
        name, made(name, {}, 3, rows, 130, 1, 1), "129 of 130 rows count.", 201, 202, 1003, flags=("many rows",)
    )


def _distillations() -> Iterator[Golden]:
    name = "soft_cross_entropy"
    yield single(
        name, plain(name, 3, 3, 4, 1), "Two of three rows count.", 301, 302, flags=("slope of log q", UNCHANGED)
    )
    one = DistillCase(np.array([[1.5, -0.5, 0.25]]), np.array([[0.75, 1.25, -2.0]]), np.array([True]))
    yield single(name, one, "One row of three tokens.", 301, 302, flags=("slope of log q",))
    told = (
        "A token is masked on both sides and costs nothing.",
        "A token is masked by the target alone.",
        "A token of the target is masked by the drafter, and the loss is infinite.",
    )
    for case, words in zip(MASKED_LOGITS, told):
        yield single(name, case, words, 303, flags=("masked",))
    yield from everywhere(name, (301, 302))
    yield from (
        edge(name, DistillCase(d, t, np.ones(len(d), dtype=bool)), i, 301, 302) for i, (d, t) in enumerate(EDGE_LOGITS)
    )
    yield single(
        name, made(name, {}, 3, rows, 130, 2, 1), "129 of 130 rows count.", 301, 302, 1003, flags=("many rows",)
    )


_EDGES = (
    "Logits of ±10⁴ that contradict each other.",
    "Logits around −10⁴ against logits around 10⁴.",
    "The target has one possible token, the drafter's likeliest and its least likely.",
    "Masses that underflow in float32 and in float64.",
    "Logits beyond the range of float32's exponential.",
    "Logits beyond the range of float64's exponential.",
)


def edge(operation: str, case: Any, i: int, *clauses: int) -> Golden:
    flags = ("extreme", "masked") if i == 2 else ("extreme",)
    return single(operation, case, _EDGES[i], *clauses, 1001, flags=flags)


def _eagle1s() -> Iterator[Golden]:
    name = "eagle1_loss"
    base = plain(name, 5, 3, 4, 2)
    clauses = (401, 402, 403)
    yield single(name, base, "The released weights, 1 and 0.1.", *clauses, flags=(UNCHANGED,))
    others: tuple[tuple[str, Mapping[str, Any]], ...] = (
        ("Weights of 0.5 and 2, and beta 0.5.", {"regression_weight": 0.5, "classification_weight": 2.0, "beta": 0.5}),
        ("No weight on the regression, which is still a part.", {"regression_weight": 0.0}),
        ("No weight on the classification, which is still a part.", {"classification_weight": 0.0}),
    )
    for words, fields in others:
        yield single(name, dataclasses.replace(base, **fields), words, *clauses)
    yield from everywhere(name, clauses)
    for case, words in zip(edges(name, {}), ("Logits of ±10⁴ behind the head.", "Large features, one row of two.")):
        yield single(name, case, words, *clauses, 1001, flags=("extreme",))


def _held(case: TopKCase) -> TopKCase:
    """The case in numbers that every dtype holds, so that what is tied is tied in all of them."""
    return dataclasses.replace(
        case, draft_logits=case.draft_logits - 2.0**-10, target_logits=case.target_logits - 2.0**-10
    )


def _topks() -> Iterator[Golden]:
    name = "topk_distillation"
    clauses = (501, 503, 504, 505)
    for k, words in (
        (1, "One token of four."),
        (2, "Two tokens of four."),
        (4, "Every token, as in soft cross-entropy."),
    ):
        yield single(name, plain(name, 6 + k, 3, 4, 1, k=k), words, *clauses, flags=(UNCHANGED,) if k == 2 else ())
    told = (
        "Three logits are tied for one place.",
        "Three are tied for two places.",
        "Ties at the last places of two rows.",
    )
    for case, words in zip(map(_held, TIED_LOGITS), told):
        yield single(name, case, words, 501, 502, flags=("ties",))
    for case, words in zip(ABOVE_THE_VOCABULARY, ("k is one above the vocabulary.", "k is 2⁴⁰.")):
        yield single(name, case, words, 501, 505, 506, flags=("large",))
    told = (
        "A token outside of the set is masked by the drafter.",
        "A token is masked on both sides and is in the set.",
        "A token of the set is masked by the drafter, and the loss is infinite.",
    )
    for case, words in zip(MASKED_TOPS, told):
        yield single(name, case, words, 303, 501, flags=("masked",))
    wide = dataclasses.replace(
        WIDE_TOP, target_logits=np.stack([np.arange(24) * 7 % 24 / 8, np.arange(24) * 5 % 24 / 8])
    )
    yield single(name, wide, "Ten tokens of 24.", *clauses, flags=("many steps",))
    yield from everywhere(name, clauses)
    for i in (0, 2, 3, 5):
        draft, target = EDGE_LOGITS[i]
        yield edge(
            name, _held(TopKCase(draft, target, np.ones(len(draft), dtype=bool), 1 if i == 3 else 2)), i, 501, 505
        )


def _hasses() -> Iterator[Golden]:
    name = "hass_loss"
    clauses = (601, 602, 603)
    base = plain(name, 9, 3, 4, 2)
    weighed = {"regression_weight": 0.5, "classification_weight": 2.0, "topk_weight": 0.25, "beta": 0.5, "k": 3}
    yield single(name, base, "Two steps with masks of their own.", *clauses, flags=(UNCHANGED,))
    yield single(name, dataclasses.replace(base, **weighed), "Three other weights, and beta 0.5.", *clauses)
    yield single(name, dataclasses.replace(base, topk_weight=0.0), "No weight on the top-K term.", *clauses)
    supervise = np.array([[True, False], [False, False], [True, True]])
    empty = HassLossCase(
        np.stack([base.predicted[0, :2], base.predicted[1, :2], base.predicted[0, 1:]]),
        base.target[:2],
        base.head,
        supervise,
        2,
    )
    yield single(
        name, empty, "The second of three steps supervises no row.", *clauses, 604, flags=("nothing supervised",)
    )
    told = (
        "Tied logits behind the head, k = 1.",
        "Tied logits behind the head, k = 2.",
        "Ties of two rows behind a head.",
    )
    for case, words in zip(TIED_HEADS, told):
        yield single(name, case, words, 502, 602, flags=("ties",))
    yield single(name, LONG_HASS, "Five steps, two of six rows.", *clauses, flags=("many steps",))
    rng = np.random.default_rng(1)  # of which every dtype tells the tenth logit from the eleventh
    wide = HassLossCase(rows(rng, 1, 2, 2), rows(rng, 2, 2), rows(rng, 24, 2) / 4, np.array([[True, False]]), 10)
    yield single(name, wide, "A head of 24 tokens, ten of which are kept.", *clauses, flags=("many steps",))
    yield from everywhere(name, clauses)
    for case, words in list(
        zip(edges(name, {}), ("Logits of ±10⁴ behind the head, k = 1.", "", "And with every token in the set."))
    )[::2]:
        yield single(name, case, words, *clauses, 1001, flags=("extreme",))


LOSSES: tuple[Golden, ...] = (*_regressions(), *_distillations(), *_eagle1s(), *_topks(), *_hasses())
"""Those of one term or several, and of HASS."""
