"""The golden vectors of drafters, with their answers at fifty digits and the bound of an implementation's roundings.

What is published is the mpmath road's answer, rounded once. The oracle, and the road on a tape, have to lie within
what rounding in float64 may do to it.

The bound of a case is that of the tape, whose every bound is a multiple of the unit: each rounding of a rollout, from
the first cast to the last sum, weighed by what it does to the entries of the answer, accumulators no wider than the
dtype, and states fed back with the errors that they have. Second order is covered as the tape covers it. The largest
bound of the logits and the states is the case's.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from conformance.drafter import golden_cases
from conformance.drafter.replaying import REFUSED_OR_NOT_FINITE
from conformance.fixtures import digits
from conformance.fixtures.golden import Answer, Golden
from conformance.roads import digits_drafter
from conformance.roads import drafter as road
from conformance.roads.tape import Rounding
from conformance.verdicts import HarnessError
from oracle import drafter as oracle
from oracle.errors import BadInput
from oracle.types import DrafterCase, DraftRollout

FLAGS = golden_cases.FLAGS
GOLDEN = golden_cases.GOLDEN
UNTOUCHED: Mapping[str, str] = {
    "DRAFTER-103": "what a case leaves behind shows in the order of cases, and not in one of them",
}
UNSHOWN: Mapping[str, str] = {}
UNIT = Rounding(1.0, 1.0)
"""Bounds on a tape are linear in the roundoff: these count how many of it there are."""
ROUNDOFF = 2.0**-53


def answer(golden: Golden) -> Answer:
    """What every road says. Raises `HarnessError` where they disagree."""
    case: DrafterCase = golden.arguments["case"]
    wrong = misfit(case)
    try:
        ours = oracle.draft_logits(case)
    except BadInput as error:
        field = error.field.partition("[")[0]
        if wrong != field:
            raise HarnessError(f"the oracle refuses {field}, and the table of shapes {wrong}") from None
        if "DRAFTER-1004" in golden.clauses:
            return Answer(REFUSED_OR_NOT_FINITE, ("oracle", "shapes"), "relation")
        return Answer(field, ("oracle", "shapes"), "refusal")
    if wrong:
        raise HarnessError(f"the oracle takes {wrong} that fit no drafter")
    logits, states = digits.settled(
        lambda places: [digits.floats(rows) for rows in digits_drafter.rollout(case, places)]
    )
    steps = road.chained(case, UNIT)
    off = max(float(entries.max()) for step in steps for entries in (step.logits_off, step.state_off))
    taped = [np.array([step.logits for step in steps]), np.array([step.state for step in steps])]
    for name, right, *others in zip(("logits", "states"), (logits, states), (ours.logits, ours.states), taped):
        for found in others:
            if not np.abs(found - right).max() <= off * ROUNDOFF:
                raise HarnessError(f"a road lies {np.abs(found - right).max()} away from mpmath's {name}")
    value = DraftRollout(logits, states)
    return Answer(value, ("oracle", "mpmath", "tape"), "rounding", digits.limits(off, (logits, states)))


def misfit(case: DrafterCase) -> str | None:
    """The field of a case that fits no drafter of its configuration, or whose numbers are none."""
    d, heads, groups, width = (
        int(str(case.config[name]))
        for name in ("hidden_size", "num_attention_heads", "num_key_value_heads", "intermediate_size")
    )
    each = int(str(case.config.get("head_dim", d // heads)))
    one, seen = case.variant == "eagle1", 2 * d if case.variant == "eagle3" else d
    layer = "layers.0" if one else "midlayer"
    shapes: dict[str, tuple[int | None, ...]] = {
        "fc": (d, 2 * d if one else 3 * d),
        "embed_tokens": (None, d),
        "lm_head": (None, d),
        **{f"{layer}.self_attn.{n}_proj": (count * each, seen) for n, count in zip("qkv", (heads, groups, groups))},
        f"{layer}.self_attn.o_proj": (d, heads * each),
        **{f"{layer}.mlp.{n}_proj": (width, d) for n in ("gate", "up")},
        f"{layer}.mlp.down_proj": (d, width),
        f"{layer}.post_attention_layernorm": (d,),
    }
    if not one:
        shapes |= {name: (d,) for name in (f"{layer}.input_layernorm", f"{layer}.hidden_norm", "norm")}
    if case.variant == "eagle3_projected":
        shapes["input_projection"] = (d, 2 * d)
    for name, shape in shapes.items():
        held = case.weights.get(f"{name}.weight")
        if held is None or held.ndim != len(shape) or any(b not in (None, a) for a, b in zip(held.shape, shape)):
            return "weights"
        if not np.isfinite(held).all():
            return "weights"
    vocabulary = len(case.weights["embed_tokens.weight"])
    for field, values in (("tokens", case.tokens), ("rollout_tokens", case.rollout_tokens)):
        if ((values < 0) | (values >= vocabulary)).any():
            return field
    if case.features.shape != (len(case.tokens), d if one else 3 * d) or not np.isfinite(case.features).all():
        return "features"
    return None
