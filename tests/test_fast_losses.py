"""The losses in torch: the oracle's values and gradients, through heads, in parts of any size, on little memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from adapters.fast_losses import Losses  # noqa: E402
from conformance.losses.tolerance import Counter  # noqa: E402
from conformance.roads import losses as road  # noqa: E402
from oracle import losses as oracle  # noqa: E402
from oracle.errors import BadInput  # noqa: E402
from oracle.fast import distillation, laws, products  # noqa: E402
from oracle.fast import losses as fast  # noqa: E402
from oracle.types import (  # noqa: E402
    DENOMINATORS,
    DIVERGENCES,
    GATES,
    REDUCTIONS,
    RESTRICTED_TARGETS,
    DistillCase,
    DraftMapCase,
    Eagle1Case,
    HassLossCase,
    RegressionCase,
    RolloutLossCase,
    TopKCase,
)

INF = np.inf


@pytest.fixture(params=["cpu", "as on a GPU"])
def device_path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways through the code; on a CPU in parts so small that every boundary is met."""
    if request.param == "cpu":
        monkeypatch.setattr(products, "ELEMENTS", 16)
    else:
        for module in (products, laws, distillation):
            monkeypatch.setattr(module, "on_cpu", lambda tensor: False)
    monkeypatch.setattr(distillation, "ROWS", 2)
    monkeypatch.setattr(distillation, "ROWS_ON_A_GPU", 3)
    monkeypatch.setattr(laws, "GROUP", 2)
    monkeypatch.setattr(products, "TOKENS", 3)


def flags(rng: np.random.Generator, *shape: int) -> np.ndarray:
    found = rng.random(shape) < 0.7
    found.flat[0] = True
    return found


def cases() -> Iterator[tuple[str, Any]]:
    rng = np.random.default_rng(0)

    def of(*shape: int) -> np.ndarray:
        return 2 * rng.normal(size=shape)

    for _ in range(4):
        steps, rows, vocabulary, width = (int(n) for n in rng.integers((1, 3, 6, 1), (4, 8, 12, 5)))
        one, each = flags(rng, rows), flags(rng, steps, rows)
        yield "feature_regression", RegressionCase(of(rows, width), of(rows, width), one, 0.75)
        target = of(rows, vocabulary)
        target[:, 1::3] = -INF
        yield "soft_cross_entropy", DistillCase(of(rows, vocabulary), target, one)
        for k in (1, 3, vocabulary + 1):
            yield "topk_distillation", TopKCase(of(rows, vocabulary), np.round(target), one, k)
        head = of(vocabulary, width)
        for weights in ((1.0, 0.1), (0.0, 2.0), (0.5, 0.0), (0.0, 0.0)):
            yield "eagle1_loss", Eagle1Case(of(rows, width), of(rows, width), head, one, 0.75, *weights)
        for terms in ((1.0, 0.1, 1.0), (0.0, 0.0, 2.0), (1.0, 0.5, 0.0), (0.0, 1.5, 0.5)):
            yield "hass_loss", HassLossCase(of(steps, rows, width), of(rows, width), head, each, 2, 0.75, *terms)


def rollouts() -> Iterator[RolloutLossCase]:
    """Every convention, on maps and without, in steps that count no row and of zero weight."""
    rng = np.random.default_rng(1)
    ids = np.array([6, 0, 3, 4])
    conventions = itertools.product(DENOMINATORS, RESTRICTED_TARGETS, GATES, DIVERGENCES, REDUCTIONS)
    for i, chosen in enumerate(conventions):
        draft, target = rng.normal(size=(3, 5, 4 if i % 3 else 7)), np.round(2 * rng.normal(size=(3, 5, 7)))
        target[0, 1, ids] = -INF
        draft[2, 0, 1] = -INF
        target[2, 0, [1, 0]] = -INF
        supervise = flags(rng, 3, 5)
        supervise[1] = np.False_
        weights = (None, (1.0, 2.0, 0.5), (0.0, 1.0, 0.5))[i % 3]
        yield RolloutLossCase(draft, target, supervise, weights, ids if i % 3 else None, *chosen, 0.25 * (i % 2))


def close(found: Any, right: Any) -> None:
    assert found.value == pytest.approx(right.value, rel=1e-13, abs=1e-14)
    assert list(found.parts) == [None if part is None else pytest.approx(part, rel=1e-13) for part in right.parts]
    for name, gradient in right.grad.items():
        np.testing.assert_allclose(found.grad[name], gradient, rtol=1e-11, atol=1e-14)
        assert np.array_equal(found.again[name], found.grad[name])


@pytest.mark.usefixtures("device_path")
def test_values_and_gradients_are_the_oracles() -> None:
    for operation, case in cases():
        close(getattr(Losses, operation)(case), getattr(oracle, operation)(case))


@pytest.mark.usefixtures("device_path")
def test_every_convention_of_a_rollout_is_the_oracles() -> None:
    for case in rollouts():
        close(Losses.rollout_loss(case), oracle.rollout_loss(case))


def test_maps_are_the_oracles() -> None:
    marks = np.array([True, False, True, True, False])
    for convention, d2t in (("offset", [0, 1, 1]), ("absolute", [3, 0, 2])):
        case = DraftMapCase(np.array(d2t), marks, convention)
        assert Losses.draft_to_target(case).tolist() == oracle.draft_to_target(case).tolist()
    for d2t, field, index in (([0, 0, -1], "d2t", 2), ([0, 1, 5], "d2t", 2), ([0, 0, 1], "t2d", 1)):
        with pytest.raises(BadInput) as raised:
            Losses.draft_to_target(DraftMapCase(np.array(d2t), marks, "offset"))
        assert (raised.value.field, raised.value.index) == (field, (index,))


# ---- through heads


def headed(seed: int, steps: int = 3, rows: int = 5, dtype: Any = torch.float64) -> tuple[Any, ...]:
    """Draft states and head, target states and head, supervision."""
    made = torch.Generator().manual_seed(seed)

    def of(*shape: int) -> Any:
        return torch.randn(*shape, generator=made, dtype=torch.float64).to(dtype).requires_grad_()

    supervise = torch.rand(steps, rows, generator=made) < 0.7
    supervise[0, 0] = True
    return of(steps, rows, 4), of(6, 4), of(steps, rows, 3), of(9, 3), supervise


IDS = torch.tensor([8, 0, 2, 5, 3, 1])


@pytest.mark.usefixtures("device_path")
@pytest.mark.parametrize("denominator", DENOMINATORS)
@pytest.mark.parametrize("restricted", RESTRICTED_TARGETS)
@pytest.mark.parametrize("gate", GATES)
def test_a_head_is_the_logits_that_it_makes(denominator: str, restricted: str, gate: str) -> None:
    states, head, theirs, their_head, supervise = headed(3)
    rest = (supervise, (1.0, 0.5, 2.0), IDS, denominator, restricted, gate, "kl", "mean", 0.5)
    made = fast.rollout_loss(fast.Headed(states, head), fast.Headed(theirs, their_head), *rest)
    right = fast.rollout_loss(states @ head.T, theirs @ their_head.T, *rest)
    torch.testing.assert_close(made, right)
    trained = (states, head)
    for found, wanted in zip(torch.autograd.grad(made.value, trained), torch.autograd.grad(right.value, trained)):
        torch.testing.assert_close(found, wanted)
    assert theirs.grad is None and not torch.autograd.grad(made.value * 0 + theirs.sum() * 0, theirs)[0].any()


@pytest.mark.usefixtures("device_path")
@pytest.mark.parametrize("gate", GATES)
def test_gradients_of_states_and_head_are_those_of_differences(gate: str) -> None:
    states, head, theirs, their_head, supervise = headed(4)

    def loss(states: Any, head: Any) -> Any:
        made = fast.Headed(states, head), fast.Headed(theirs, their_head)
        return fast.rollout_loss(*made, supervise, None, IDS, gate=gate).value

    assert torch.autograd.gradcheck(loss, (states, head))


@pytest.mark.usefixtures("device_path")
def test_one_head_of_both_is_two_that_are_alike() -> None:
    states, head, theirs, _, supervise = headed(12)
    target = torch.cat((theirs, theirs[..., :1]), -1).detach()[0]
    row = torch.tensor([4, 0, 2, 2, 1]).expand(3, 5)
    found = []
    for their_head in (head, head.detach().clone()):
        made = fast.Headed(states, head), fast.Headed(target, their_head)
        loss = fast.rollout_loss(*made, supervise, target_row=row).value
        found.append([loss, *torch.autograd.grad(loss, (states, head))])
    torch.testing.assert_close(*found)


@pytest.mark.usefixtures("device_path")
def test_steps_may_share_rows_of_the_target() -> None:
    states, head, theirs, their_head, supervise = headed(5)
    target = theirs.reshape(-1, 3)[:5].detach()
    row = (torch.arange(5) + torch.arange(3).unsqueeze(1)).clamp(max=4)
    row[~supervise] = -7  # never read
    draft = fast.Headed(states, head)
    made = fast.rollout_loss(draft, fast.Headed(target, their_head), supervise, None, IDS, target_row=row)
    spread = fast.Headed(target[row.clamp(min=0)], their_head)
    right = fast.rollout_loss(draft, spread, supervise, None, IDS)
    torch.testing.assert_close(made, right)
    for found, wanted in zip(*(torch.autograd.grad(loss.value, (states, head)) for loss in (made, right))):
        torch.testing.assert_close(found, wanted)
    with pytest.raises(BadInput, match="a row that counts is one of the 5"):
        fast.rollout_loss(draft, fast.Headed(target, their_head), supervise, None, IDS, target_row=row + 5)


def test_what_does_not_count_is_never_read() -> None:
    states, head, theirs, their_head, supervise = headed(6)
    clean = fast.rollout_loss(fast.Headed(states, head), fast.Headed(theirs, their_head), supervise, None, IDS)
    poisoned = [x.detach().masked_fill(~supervise.unsqueeze(-1), torch.nan).requires_grad_() for x in (states, theirs)]
    made = fast.rollout_loss(fast.Headed(poisoned[0], head), fast.Headed(poisoned[1], their_head), supervise, None, IDS)
    assert torch.equal(made.value, clean.value)
    (found,) = torch.autograd.grad(made.value, poisoned[0])
    assert torch.equal(found, torch.autograd.grad(clean.value, states)[0])
    assert not found[~supervise].any()


def test_rows_have_any_leading_axes_and_no_gradient_costs_none() -> None:
    states, head, theirs, their_head, supervise = headed(7, rows=6)
    target = fast.Headed(theirs, their_head)
    with torch.no_grad():
        flat = fast.rollout_loss(fast.Headed(states, head), target, supervise, None, IDS)
    assert not flat.value.requires_grad
    shaped = [x.reshape(3, 2, 3, -1) for x in (states, theirs)]
    made = fast.rollout_loss(
        fast.Headed(shaped[0], head), fast.Headed(shaped[1], their_head), supervise.reshape(3, 2, 3), None, IDS
    )
    assert torch.equal(made.value, flat.value)


def test_nothing_counted_is_zero_and_says_so() -> None:
    states, head, theirs, their_head, supervise = headed(8)
    none = torch.zeros_like(supervise)
    made = fast.rollout_loss(fast.Headed(states, head), fast.Headed(theirs, their_head), none, None, IDS)
    assert (made.value.item(), made.counted.tolist(), made.parts.tolist()) == (0.0, [0, 0, 0], [0.0, 0.0, 0.0])
    for gradient in torch.autograd.grad(made.value, (states, head)):
        assert not gradient.any()


# ---- precision and memory


@pytest.mark.parametrize("operation", ["eagle1_loss", "hass_loss"])
@pytest.mark.parametrize("narrow", ["float32", "bfloat16"])
def test_narrow_inputs_are_summed_in_float32(operation: str, narrow: str) -> None:
    """Within what the suite allows float32, also where inputs and head are bfloat16."""
    rng = np.random.default_rng(9)

    def of(*shape: int) -> np.ndarray:
        return rng.integers(-127, 128, shape) / 64  # bfloat16 holds these

    supervise = flags(rng, 9)
    case: Any = Eagle1Case(of(9, 5), of(9, 5), of(20, 5), supervise)
    if operation == "hass_loss":
        case = HassLossCase(of(2, 9, 5), of(9, 5), of(20, 5), np.stack([supervise, ~supervise]), 20)

    class Narrow(Losses):
        dtype = narrow

    found, right = getattr(Narrow, operation)(case), getattr(oracle, operation)(case)
    bounds = Counter(case, "float32").bounds(getattr(road, operation)(case, True), True)
    assert abs(found.value - right.value) <= bounds.value
    # beyond those float32 roundings there is one, of the finished gradient to the dtype of what is trained
    unit = 2.0**-8 if narrow == "bfloat16" else 0.0
    assert bounds.gradient is not None
    allowed = (1 + unit) * bounds.gradient + unit * np.abs(right.grad["predicted"])
    assert (np.abs(found.grad["predicted"] - right.grad["predicted"]) <= allowed).all()


class Watched(TorchDispatchMode):
    """Notes the largest tensor that is made, and the rows that matrix products have."""

    def __init__(self) -> None:
        super().__init__()
        self.largest, self.multiplied = 0, 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        for tensor in found if isinstance(found, (tuple, list)) else [found]:
            if isinstance(tensor, torch.Tensor):
                self.largest = max(self.largest, tensor.numel())
        if function.overloadpacket is torch.ops.aten.mm:
            self.multiplied += len(args[0])
        return found


def watched(run: Callable[[], Any]) -> Watched:
    with Watched() as seen:
        run()
    return seen


@pytest.mark.parametrize("way", ["cpu", "as on a GPU"])
def test_memory_does_not_grow_with_rows_times_vocabulary(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if way != "cpu":
        for module in (products, laws, distillation):
            monkeypatch.setattr(module, "on_cpu", lambda tensor: False)
    monkeypatch.setattr(distillation, "ROWS", 8)
    monkeypatch.setattr(distillation, "ROWS_ON_A_GPU", 8)
    width, vocabulary = 4, 3000
    head = torch.randn(vocabulary, width)
    largest = []
    for rows in (16, 200):
        states, target = torch.randn(2, rows, width, requires_grad=True), torch.randn(rows, width)

        def run(states: Any = states, target: Any = target, rows: int = rows) -> None:
            row = torch.arange(rows).expand(2, rows)
            made = fast.Headed(states, head), fast.Headed(target, head)
            supervise = torch.ones(2, rows, dtype=torch.bool)
            fast.rollout_loss(
                *made, supervise, draft_to_target=torch.arange(vocabulary), target_row=row
            ).value.backward()
            fast.hass_loss(states, target, head, supervise, 10).value.backward()

        largest.append(watched(run).largest)
    assert largest[0] == largest[1] <= 2 * 8 * vocabulary  # of the target and of the draft


def test_only_rows_that_count_are_multiplied_and_shared_rows_once() -> None:
    head = torch.randn(50, 4)
    states, target = torch.randn(3, 40, 4, requires_grad=True), torch.randn(40, 4)
    supervise = torch.zeros(3, 40, dtype=torch.bool)
    supervise[:, ::4] = True
    made = fast.Headed(states, head), fast.Headed(target, head)
    row = torch.arange(40).expand(3, 40)
    seen = watched(lambda: fast.rollout_loss(*made, supervise, target_row=row).value.backward())
    assert seen.multiplied == 10 + 2 * 30  # of the target once; of the draft there and back
    shut = torch.tensor([v for v in range(50) if v != int((target[0] @ head.T).argmax())])
    draft = fast.Headed(states, head[shut])
    seen = watched(lambda: fast.rollout_loss(draft, made[1], supervise, None, shut, target_row=row).value.backward())
    closed = int(((target[::4] @ head.T).argmax(-1) == (target[0] @ head.T).argmax()).sum())
    assert seen.multiplied == 10 + 2 * 3 * (10 - closed)


def test_the_same_inputs_give_the_same_bits() -> None:
    states, head, theirs, their_head, supervise = headed(10, rows=300, dtype=torch.float32)
    found = []
    for _ in range(2):
        made = fast.rollout_loss(fast.Headed(states, head), fast.Headed(theirs, their_head), supervise, None, IDS)
        found.append([made.value, *torch.autograd.grad(made.value, (states, head))])
    assert all(torch.equal(first, second) for first, second in zip(*found))


# ---- bad input


def test_bad_input_names_field_index_and_rule() -> None:
    states, head, theirs, their_head, supervise = headed(11)
    supervise[:] = True
    draft, target = fast.Headed(states, head), fast.Headed(theirs, their_head)
    poisoned = states.detach().clone()
    poisoned[1, 2, 3] = torch.inf
    logits = torch.randn(3, 5, 6)
    broken = logits.clone()
    broken[2, 4, 1] = torch.nan
    empty = logits[0].clone()
    empty[3] = -torch.inf
    cases: list[tuple[Callable[[], Any], str, tuple[int, ...]]] = [
        (lambda: fast.rollout_loss(states.long(), target, supervise), "draft_logits", ()),
        (lambda: fast.rollout_loss(fast.Headed(states, their_head), target, supervise), "draft_logits.weight", ()),
        (lambda: fast.rollout_loss(draft, target, supervise), "draft_logits", ()),
        (lambda: fast.rollout_loss(draft, target, supervise[:, :4], None, IDS), "supervise", ()),
        (lambda: fast.rollout_loss(draft, target, supervise.long(), None, IDS), "supervise", ()),
        (lambda: fast.rollout_loss(draft, target, supervise, (1.0,), IDS), "step_weights", ()),
        (lambda: fast.rollout_loss(draft, target, supervise, (1.0, 1.0, INF), IDS), "step_weights", (2,)),
        (lambda: fast.rollout_loss(draft, target, supervise, None, IDS.clamp(max=5)), "draft_to_target", (3,)),
        (lambda: fast.rollout_loss(draft, target, supervise, None, IDS + 1), "draft_to_target", (0,)),
        (lambda: fast.rollout_loss(draft, target, supervise, None, IDS, "all"), "denominator", ()),
        (
            lambda: fast.rollout_loss(fast.Headed(poisoned, head), target, supervise, None, IDS),
            "draft_logits.hidden",
            (1, 2, 3),
        ),
        (lambda: fast.rollout_loss(logits, broken, supervise), "target_logits", (2, 4, 1)),
        (lambda: fast.rollout_loss(broken, logits, supervise), "draft_logits", (2, 4, 1)),
        (lambda: fast.soft_cross_entropy(logits[0], empty, supervise[0]), "target_logits", (3,)),
        (lambda: fast.topk_distillation(logits[0], logits[0], supervise[0], 0), "k", ()),
        (lambda: fast.feature_regression(states[0], theirs[0], supervise[0]), "target", ()),
        (lambda: fast.feature_regression(poisoned, states, supervise), "predicted", (1, 2, 3)),
        (lambda: fast.eagle1_loss(states, states, head * INF, supervise), "head", (0, 0)),
        (lambda: fast.eagle1_loss(states, states, head, supervise, beta=0.0), "beta", ()),
        (lambda: fast.hass_loss(states, states, head, supervise, 1), "target", ()),
    ]
    for i, (run, field, index) in enumerate(cases):
        with pytest.raises(BadInput) as raised:
            run()
        assert (raised.value.field, raised.value.index) == (field, index), i


def test_what_is_no_number_is_no_finite_loss_where_nobody_looks() -> None:
    logits = torch.randn(2, 3, 4)
    for wrong in (torch.nan, torch.inf):
        broken = logits.clone()
        broken[1, 1, 2] = wrong
        supervise = torch.ones(2, 3, dtype=torch.bool)
        ids = torch.tensor([0, 3])
        for given in ((logits, broken), (broken, logits)):
            assert not fast.rollout_loss(*given, supervise, validate=False).value.isfinite()
            assert not fast.soft_cross_entropy(given[0][1], given[1][1], supervise[1], validate=False).value.isfinite()
        made = fast.rollout_loss(logits[..., :2], broken, supervise, None, ids, validate=False)
        assert not made.value.isfinite() or wrong == torch.inf
