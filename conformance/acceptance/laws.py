"""The law of what is published against the target's, by coins and by evidence: one body for chains and trees."""

from __future__ import annotations

from conformance import draw
from conformance.acceptance import measure, sampling
from conformance.acceptance.cases import Prefix, TableModel
from conformance.check import Check
from conformance.evidence import EProcess
from conformance.roads import acceptance as road
from conformance.verdicts import ClauseViolation


def target_law(model: TableModel) -> dict[Prefix, float]:
    """The target's own law of one token more than the tree is deep."""
    law = road.sequence_law(model.target, model.depth + 1)
    return {tokens: float(weight) for tokens, weight in law.items()}


def worst_sequences(found: dict[Prefix, float], target: dict[Prefix, float], count: int = 3) -> str:
    ranked = sorted(target, key=lambda k: -abs(found.get(k, 0.0) - target[k]))[:count]
    return "; ".join(
        f"{'→'.join(map(str, k))} has {draw.number(found.get(k, 0.0))}, the target {draw.number(target[k])}"
        for k in ranked
    )


def told(process: EProcess) -> str:
    """The evidence of an alarm."""
    return f"e-value 10^{process.largest / 2.302585:.1f} against α = {process.alpha:.0e}"


def first_token_by_coins(check: Check, model: TableModel, steps: int) -> None:
    """Integrate over the implementation's coins and compare the first token's law with the root's row."""
    emitted = measure.emitted_law(check, model, steps)
    target = [float(p) for p in model.target[()]]
    found = [sum(m for tokens, m in emitted.items() if tokens[0] == v) for v in range(model.vocabulary)]
    allowed = measure.bound(check, model, steps)
    worst = max(abs(a - b) for a, b in zip(found, target))
    if worst > allowed:
        raise ClauseViolation(
            f"integrated over its coins, the first token has the law {draw.row(found)}; the target row is "
            f"{draw.row(target)}: off by {worst:.3g}, more than the {allowed:.2g} of its arithmetic"
        )


def joint_by_coins(check: Check, model: TableModel, steps: int) -> None:
    """Integrate over the implementation's coins and compare whole sequences with the target's."""
    found = measure.completed(measure.emitted_law(check, model, steps), model, model.depth + 1)
    target = target_law(model)
    allowed = measure.bound(check, model, steps)
    if max(abs(found.get(k, 0.0) - m) for k, m in target.items()) > allowed:
        raise ClauseViolation(
            f"integrated over its coins, the sequence {worst_sequences(found, target)}: more than the {allowed:.2g} of "
            "its arithmetic"
        )


def first_token_by_evidence(check: Check, model: TableModel, what: str, share: float = 1.0) -> None:
    """Weigh the first tokens that `what` publishes against the root's row."""
    target = [float(p) for p in model.target[()]]

    def sample(trials: int, seed: int) -> list[int]:
        first = [tokens[0] for tokens in sampling.published(check, model, trials, seed)]
        return [first.count(v) for v in range(model.vocabulary)]

    null = f"the first token that {what} publishes follows the target row at the root"
    process = check.weigh(null, target, sample, check.trials("verify_random", share))
    if process.alarmed:
        raise ClauseViolation(
            f"{process.observations} first tokens fell {list(process.counts)}; the target row {draw.row(target)} "
            f"expects {draw.row([p * process.observations for p in target])} ({told(process)})"
        )


def joint_by_evidence(check: Check, model: TableModel, what: str, share: float = 1.0) -> None:
    """Weigh the sequences that `what` publishes, continued from the target, against the target's."""
    target = target_law(model)
    order = sorted(target)

    def sample(trials: int, seed: int) -> list[int]:
        counts = dict.fromkeys(order, 0)
        for tokens in sampling.published(check, model, trials, seed):
            if tokens not in counts:
                raise ClauseViolation(f"the sequence {'→'.join(map(str, tokens))} is impossible for the target")
            counts[tokens] += 1
        return [counts[k] for k in order]

    null = f"the {model.depth + 1} tokens that {what} publishes, continued from the target, follow its joint law"
    process = check.weigh(null, [target[k] for k in order], sample, check.trials("verify_random", share))
    if process.alarmed:
        seen = {k: c / process.observations for k, c in zip(order, process.counts)}
        raise ClauseViolation(
            f"after {process.observations} rounds the sequence {worst_sequences(seen, target)} ({told(process)})"
        )
