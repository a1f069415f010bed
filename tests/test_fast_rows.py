"""Rows, collation and noise in torch: the oracle's answers, by both ways, in batches ragged, padded or without rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from oracle import noise as oracle_noise  # noqa: E402
from oracle import rows as oracle  # noqa: E402
from oracle.errors import BadInput  # noqa: E402
from oracle.fast import collation, noise  # noqa: E402
from oracle.fast import rows as fast  # noqa: E402
from oracle.types import (  # noqa: E402
    OWNERS,
    GatherCase,
    NoiseCase,
    RolloutRows,
    RolloutRowsCase,
    RowPlan,
    SupervisionCase,
    TokenBatch,
)

VECTORS = ("batch", "source", "advanced", "target", "label", "supervise", "position")
ARRAYS = ("tokens", "valid", "segment", "position", "supervise")


@pytest.fixture(params=["cpu", "as on a GPU"])
def device_path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways through the code."""
    if request.param != "cpu":
        monkeypatch.setattr(fast, "on_cpu", lambda tensor: False)


def drawn(rng: np.random.Generator) -> TokenBatch:
    """Any shape, none too; holes, segments that come back, ids that batch rows share, positions that skip."""
    shape = int(rng.integers(0, 4)), int(rng.integers(0, 12))
    segment = rng.integers(0, 3, shape)
    if rng.random() < 0.5:
        segment.sort(1)
    position = np.cumsum(rng.integers(1, 3, shape), 1).reshape(shape)
    valid, supervise = rng.random(shape) < 0.85, rng.random(shape) < 0.6
    return TokenBatch(rng.integers(0, 50, shape), valid, segment, position, supervise)


def in_torch(batch: TokenBatch, **other: Any) -> fast.TokenBatch:
    return fast.TokenBatch(**{name: torch.tensor(other.get(name, getattr(batch, name))) for name in ARRAYS})


def batches(count: int) -> list[TokenBatch]:
    rng = np.random.default_rng(0)
    return [drawn(rng) for _ in range(count)]


def same(found: Any, right: Any, names: tuple[str, ...], rows: int) -> None:
    for name in names:
        values, wanted = getattr(found, name), getattr(right, name)
        assert values[:rows].numpy().dtype == wanted.dtype, name
        assert np.array_equal(values[:rows].numpy(), wanted), name


@pytest.mark.usefixtures("device_path")
@pytest.mark.parametrize("operation", ["soft_rows", "hard_rows"])
def test_plans_are_the_oracles(operation: str) -> None:
    for batch in batches(150):
        right: RowPlan = getattr(oracle, operation)(batch)
        rows = len(right.source)
        for size in (None, rows, rows + 3):
            found = getattr(fast, operation)(in_torch(batch), size=size)
            same(found, right, VECTORS, rows)
            assert len(found.source) == (rows if size is None else size)
            for name in ("batch", "source", "advanced", "target", "label", "position", "segment", "address"):
                assert (getattr(found, name)[rows:] == -1).all(), name
            assert not found.supervise[rows:].any()
            visible = found.visibility.dense().numpy()
            assert np.array_equal(visible[:rows, :rows], right.visible)
            assert np.array_equal(visible[rows:, rows:], np.eye(len(visible) - rows, dtype=bool))
            assert not visible[:rows, rows:].any() and not visible[rows:, :rows].any()


def test_documents_and_blocks_say_what_the_dense_mask_says() -> None:
    for batch in batches(50):
        for more in (0, 3):
            rows = len(oracle.soft_rows(batch).source)
            seen = fast.soft_rows(in_torch(batch), size=rows + more).visibility
            dense = seen.dense()
            documents = seen.documents()
            order = torch.arange(len(seen)) if documents.order is None else documents.order
            causal = torch.zeros_like(dense)
            for part in order.split(list(documents.lengths)):
                for i, row in enumerate(part):
                    causal[row, part[: i + 1]] = True
            assert torch.equal(causal, dense)
            for block in (1, 2, 3, 5) if len(seen) else ():
                assert torch.equal(unfolded(seen, block), dense)


@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_flex_attention_takes_the_blocks() -> None:
    from torch.nn.attention.flex_attention import flex_attention

    seen = fast.soft_rows(in_torch(batches(20)[-1]), size=20).visibility
    query, key, value = torch.randn(3, 1, 2, 20, 8, generator=torch.Generator().manual_seed(0))
    right = torch.nn.functional.scaled_dot_product_attention(query, key, value, seen.dense())
    assert torch.allclose(flex_attention(query, key, value, block_mask=seen.block_mask(4)), right, atol=1e-5)


def unfolded(seen: Any, block: int) -> Any:
    """What a block mask lets through: partial blocks by their predicate, full ones whole."""
    mask = seen.block_mask(block)
    found = torch.zeros((len(seen), len(seen)), dtype=torch.bool)
    row = torch.arange(len(seen))
    exact = seen.predicate(row, row, row[:, None], row[None])
    for i in range(-(-len(seen) // block)):
        query = slice(i * block, (i + 1) * block)
        for k in mask.kv_indices[0, 0, i, : mask.kv_num_blocks[0, 0, i]].tolist():
            key = slice(k * block, (k + 1) * block)
            found[query, key] = exact[query, key]
        for k in mask.full_kv_indices[0, 0, i, : mask.full_kv_num_blocks[0, 0, i]].tolist():
            assert not found[query, k * block : (k + 1) * block].any(), "a block is partial or full"
            found[query, k * block : (k + 1) * block] = True
    return found


@pytest.mark.usefixtures("device_path")
def test_rollouts_and_masks_of_sources_are_the_oracles() -> None:
    rng = np.random.default_rng(2)
    for batch in batches(100):
        for steps in (1, 2, 4, 15):
            right = oracle.rollout_rows(RolloutRowsCase(batch, steps))
            found = fast.rollout_rows(in_torch(batch), steps)
            same(found, right, tuple(RolloutRows.__dataclass_fields__), len(right.step))
            assert len(found.step) == len(right.step)
        mask = rng.random(batch.valid.shape) < 0.5
        for owner in OWNERS:
            wanted = oracle.supervision_at_source(SupervisionCase(batch, mask, owner))
            assert np.array_equal(fast.supervision_at_source(in_torch(batch), torch.tensor(mask), owner), wanted)


@pytest.mark.usefixtures("device_path")
def test_gathered_rows_are_the_oracles_and_carry_gradients() -> None:
    rng = np.random.default_rng(3)
    for batch in batches(100):
        right = oracle.gather_rows(GatherCase(batch, np.zeros((*batch.valid.shape, 2))))
        rows, plan = len(right.batch), oracle.soft_rows(batch)
        features = np.full((*batch.valid.shape, 2), np.nan)  # what no row has is never read
        for ahead in (0, 1):
            features[plan.batch, plan.source + ahead] = rng.normal(size=(rows, 2))
        right = oracle.gather_rows(GatherCase(batch, features))
        for size in (None, rows + 2):
            given = torch.tensor(features, requires_grad=True)
            found = fast.gather_rows(in_torch(batch), given, size=size)
            for name in ("feature", "target"):
                assert np.array_equal(getattr(found, name)[:rows].detach(), getattr(right, name))
            same(found, right, ("batch", "token", "supervise", "position"), rows)
            (found.feature.sum() + 2 * found.target.sum()).backward()
            slope = np.zeros(features.shape)
            np.add.at(slope, (plan.batch, plan.source), 1)
            np.add.at(slope, (plan.batch, plan.source + 1), 2)
            assert np.array_equal(given.grad, slope)


BATCH = TokenBatch(
    *(np.array([[3, 1, 2, 4], [5, 6, 7, 8]]), np.ones((2, 4), dtype=bool), np.zeros((2, 4), dtype=np.int64)),
    *(np.array([[0, 1, 2, 3]] * 2), np.ones((2, 4), dtype=bool)),
)


@pytest.mark.parametrize(
    ("call", "field", "index"),
    [
        (lambda: fast.soft_rows(in_torch(BATCH, position=np.array([[0, 1, 1, 3]] * 2))), "batch.position", (0, 2)),
        (lambda: fast.soft_rows(in_torch(BATCH, valid=BATCH.valid[:1])), "batch.valid", ()),
        (lambda: fast.soft_rows(in_torch(BATCH, valid=BATCH.tokens)), "batch.valid", ()),
        (lambda: fast.soft_rows(in_torch(BATCH, position=BATCH.position * 1.0)), "batch.position", ()),
        (lambda: fast.soft_rows(in_torch(BATCH), size=5), "size", ()),
        (lambda: fast.hard_rows(in_torch(BATCH, tokens=-BATCH.tokens)), "batch.tokens", (0, 2)),
        (lambda: fast.gather_rows(in_torch(BATCH, tokens=-BATCH.tokens), torch.ones(2, 4, 1)), "batch.tokens", (0, 1)),
        (lambda: fast.gather_rows(in_torch(BATCH), torch.full((2, 4, 1), torch.inf)), "features", (0, 0, 0)),
        (lambda: fast.gather_rows(in_torch(BATCH), torch.ones(2, 3, 1)), "features", ()),
        (lambda: fast.rollout_rows(in_torch(BATCH), 0), "steps", ()),
        (lambda: fast.supervision_at_source(in_torch(BATCH), torch.ones(2, 4) > 0, "target"), "owner", ()),
        (lambda: fast.soft_rows(in_torch(BATCH)).visibility.block_mask(0), "block", ()),
    ],
)
@pytest.mark.usefixtures("device_path")
def test_bad_input_is_named(call: Callable[[], object], field: str, index: tuple[int, ...]) -> None:
    with pytest.raises(BadInput) as caught:
        call()
    assert (caught.value.field, caught.value.index) == (field, index)


@pytest.mark.usefixtures("device_path")
def test_a_segment_that_comes_back_is_checked_whole() -> None:
    segment, position = np.array([[5, 1, 5, 5]] * 2), np.array([[0, 1, 2, 3], [4, 0, 1, 5]])
    with pytest.raises(BadInput, match=r"batch.position\[1\]\[2\]"):
        fast.soft_rows(in_torch(BATCH, segment=segment, position=position))


class Recorded(TorchDispatchMode):
    """The operations that run, and the largest tensor that comes out of one."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        self.names.add(func.__name__.partition(".")[0])
        for tensor in found if isinstance(found, (tuple, list)) else [found]:
            if isinstance(tensor, torch.Tensor):
                self.largest = max(self.largest, tensor.untyped_storage().nbytes())
        return found


WAITS = {"_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal", "_unique2"}


def packed(length: int) -> fast.TokenBatch:
    row = torch.arange(length)[None]
    return fast.TokenBatch(row + 1, row >= 0, row // 300, row, row % 3 > 0)


def test_nothing_waits_for_a_device_and_nothing_is_square(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast, "on_cpu", lambda tensor: False)
    batch, features = packed(2048), torch.ones(1, 2048, 4)
    with Recorded() as recorded:
        for plan in (fast.soft_rows, fast.hard_rows):
            plan(batch, size=2048, validate=False).visibility.block_mask(128)
        fast.gather_rows(batch, features, size=2048, validate=False)
        fast.supervision_at_source(batch, batch.supervise, "label", validate=False)
    assert not recorded.names & WAITS
    assert recorded.largest <= 8 * 8 * 2048


# ---- collation


def documents(rng: np.random.Generator, lengths: list[int], dtype: Any) -> list[collation.Document]:
    return [
        collation.Document(
            *(torch.tensor(rng.integers(1, 99, n)), torch.tensor(rng.normal(size=(n, 3))).to(dtype)),
            *(torch.tensor(rng.normal(size=(n, 2))).to(dtype), torch.tensor(rng.random(n) < 0.6)),
        )
        for n in lengths
    ]


@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_packed_documents_are_the_oracles_rows(owner: str, dtype: Any) -> None:
    rng = np.random.default_rng(4)
    out = collation.row_buffers(9, (3, 2), torch.float64)
    for lengths in ([4, 1, 6], [10], [14, 3], [0, 2], [], [5, 6, 7]):
        given = documents(rng, lengths, dtype)
        tokens = torch.cat([d.tokens for d in given] or [torch.zeros(0, dtype=torch.int64)])[None].numpy()
        segment = np.repeat(np.arange(len(lengths)), lengths)[None]
        position = np.concatenate([np.arange(n) for n in lengths] or [np.arange(0)])[None]
        mask = torch.cat([d.mask for d in given] or [torch.zeros(0, dtype=torch.bool)])[None].numpy()
        valid = np.ones(tokens.shape, dtype=bool)
        batch = TokenBatch(tokens, valid, segment, position, mask)
        batch = TokenBatch(
            tokens, valid, segment, position, oracle.supervision_at_source(SupervisionCase(batch, mask, owner))
        )
        plan = oracle.soft_rows(batch)
        fed = torch.cat([d.features for d in given] or [torch.zeros(0, 3)]).double().numpy()
        states = torch.cat([d.states for d in given] or [torch.zeros(0, 2)]).double().numpy()
        rows = min(len(plan.source), 9)
        found = collation.pack_rows(given, out, owner)
        assert np.array_equal(found.feature[:rows], fed[plan.source[:rows]])
        assert np.array_equal(found.target[:rows], states[plan.target[:rows]])
        assert np.array_equal(found.token[:rows], tokens[0, plan.advanced[:rows]])
        assert np.array_equal(found.supervise[:rows], plan.supervise[:rows])
        assert np.array_equal(found.position[:rows], plan.position[:rows])
        assert np.array_equal(found.visibility.dense()[:rows, :rows], plan.visible[:rows, :rows])
        assert sum(found.lengths) == rows
        assert not found.feature[rows:].any() and not found.target[rows:].any() and not found.token[rows:].any()
        assert not found.supervise[rows:].any()
        assert (found.position[rows:] == -1).all() and (found.document[rows:] == -1).all()
        assert found.feature.data_ptr() == out.feature.data_ptr()


def test_documents_that_do_not_fit_are_refused_before_anything_is_written() -> None:
    right, bad = documents(np.random.default_rng(5), [3, 3], torch.float32)
    bad = collation.Document(bad.tokens, bad.features, bad.states, bad.mask[:2])
    out = collation.row_buffers(4, (3, 2), torch.float32)
    with pytest.raises(BadInput, match=r"documents\[1\].mask"):
        collation.pack_rows([right, bad], out)
    assert not out.feature.any() and (out.document == -1).all()


def test_documents_of_several_dtypes_are_converted() -> None:
    wide, narrow = (documents(np.random.default_rng(6), [4], dtype)[0] for dtype in (torch.float32, torch.float16))
    found = collation.pack_rows([wide, narrow], collation.row_buffers(6, (3, 2), torch.bfloat16))
    fed = torch.cat([wide.features[:3].to(torch.bfloat16), narrow.features[:3].to(torch.bfloat16)])
    assert torch.equal(found.feature, fed)


# ---- noise


@pytest.mark.parametrize("law", ["paper", "length_scaled"])
def test_noise_is_the_oracles(law: str) -> None:
    unit = np.random.default_rng(6).random((3, 4, 2))
    for length in (1, 512, 2048):
        right = oracle_noise.feature_noise(NoiseCase(unit, length, law))
        assert np.allclose(noise.feature_noise(torch.tensor(unit), length, law), right, rtol=1e-15, atol=0)
    lengths = torch.tensor([1, 7, 512])
    found = noise.feature_noise(torch.tensor(unit), lengths.view(3, 1, 1), law)
    for row, one, length in zip(found, unit, lengths.tolist()):
        assert np.allclose(row, oracle_noise.feature_noise(NoiseCase(one, length, law)), rtol=1e-15, atol=0)


def test_noise_of_its_own_rounds_the_sum_alone() -> None:
    features = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
    narrow = features.to(torch.bfloat16)
    wide, found = (noise.noisy_sample(f, generator=torch.Generator().manual_seed(1)) for f in (features, narrow))
    unit = torch.rand(40, 6, generator=torch.Generator().manual_seed(1))
    assert torch.equal(wide, features + noise.feature_noise(unit, 40))
    assert torch.equal(found, (narrow + noise.feature_noise(unit, 40)).to(torch.bfloat16))
    assert torch.equal(narrow, features.to(torch.bfloat16))


@pytest.mark.parametrize(
    ("call", "field", "index"),
    [
        (lambda: noise.feature_noise(torch.tensor([0.5, 1.0]), 3), "unit", (1,)),
        (lambda: noise.feature_noise(torch.tensor([0.5, torch.nan]), 3), "unit", (1,)),
        (lambda: noise.feature_noise(torch.tensor([1]), 3), "unit", ()),
        (lambda: noise.feature_noise(torch.tensor([0.5]), 0), "length", ()),
        (lambda: noise.feature_noise(torch.tensor([0.5]), torch.tensor([0])), "length", (0,)),
        (lambda: noise.feature_noise(torch.tensor([0.5]), torch.tensor([1, 2])), "length", ()),
        (lambda: noise.feature_noise(torch.tensor([0.5]), 3, "gaussian"), "law", ()),
        (lambda: noise.noisy_sample(torch.ones(0, 3)), "features", ()),
    ],
)
def test_bad_noise_is_named(call: Callable[[], object], field: str, index: tuple[int, ...]) -> None:
    with pytest.raises(BadInput) as caught:
        call()
    assert (caught.value.field, caught.value.index) == (field, index)
