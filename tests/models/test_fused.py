"""The fused form: what the kernel is given, and that results and gradients stay the eager ones."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from relpos_mm.analysis.catalogue import build, position_of
from relpos_mm.encodings import Grid, PositionEncoding
from relpos_mm.models import attend, attention, fused, use_impl
from tests.models.tiny import loud, picture, tiny

HEADS, WIDTH, WINDOWS, IMAGES = 3, 8, 4, 2
GRID = Grid((7, 7))
CARRIED = ("rel", "dpb", "logcpb_cosine", "lookhere", "shaw", "sasa", "irpe_qk", "rope_mixed")


def call(name: str, dtype: torch.dtype) -> tuple[list[Tensor], list[PositionEncoding], Tensor]:
    """Tokens of an image-major batch of windows, encodings, and one mask per window."""
    torch.manual_seed(0)
    shape = (IMAGES * WINDOWS, HEADS, GRID.num_queries, WIDTH)
    tokens = [torch.randn(shape, dtype=dtype).requires_grad_() for _ in "qkv"]
    encodings = build(position_of(name), grid=GRID.q, embed_dims=HEADS * WIDTH, num_heads=HEADS)
    encodings = [encoding.to(dtype) for encoding in encodings]
    for parameter in (p for encoding in encodings for p in encoding.parameters()):
        torch.nn.init.normal_(parameter, std=0.5)
    mask = torch.rand(WINDOWS, 1, GRID.num_queries, GRID.num_keys) > 0.4
    return tokens, encodings, mask | torch.eye(GRID.num_queries, dtype=torch.bool)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("alignment", [False, True])
@pytest.mark.parametrize("name", CARRIED)
def test_results_and_gradients_are_the_eager_ones(
    name: str,
    alignment: bool,
    masked: bool,
    dtype: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fused, "rows_must_align", lambda q: alignment)
    results = []
    for impl in ("eager", "fused"):
        tokens, encodings, mask = call(name, dtype)
        out = attend(*tokens, encodings, GRID, mask=mask if masked else None, impl=impl)
        leaves = [*tokens, *(p for encoding in encodings for p in encoding.parameters())]
        weight = torch.linspace(-1, 1, out.numel(), dtype=dtype).view_as(out)
        results.append([out, *torch.autograd.grad((out * weight).sum(), leaves)])
    tolerance = 1e-10 if dtype == torch.float64 else 2e-5
    torch.testing.assert_close(*results, atol=tolerance, rtol=10 * tolerance)


@pytest.fixture
def as_on_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Biases in the memory that CUDA's kernels ask for."""
    monkeypatch.setattr(fused, "rows_must_align", lambda q: True)


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Tensor, Tensor | None]]:
    """Queries and mask of every call of torch's kernel."""
    calls: list[tuple[Tensor, Tensor | None]] = []
    kernel = fused.F.scaled_dot_product_attention

    def watched(q: Tensor, *args: Tensor, attn_mask: Tensor | None, **options: float) -> Tensor:
        calls.append((q, attn_mask))
        return kernel(q, *args, attn_mask=attn_mask, **options)

    monkeypatch.setattr(fused.F, "scaled_dot_product_attention", watched)
    return calls


@pytest.mark.usefixtures("as_on_cuda")
def test_windows_move_to_the_head_axis_and_one_bias_serves_all_images(given) -> None:
    tokens, encodings, mask = call("rel", torch.float32)
    out = attend(*tokens, encodings, GRID, mask=mask, impl="fused")
    out.square().sum().backward()
    ((q, bias),) = given
    assert q.shape == (IMAGES, WINDOWS * HEADS, 49, WIDTH)
    assert bias.shape == (1, WINDOWS * HEADS, 49, 49)
    assert bias.stride() == (WINDOWS * HEADS * 49 * 56, 49 * 56, 56, 1)  # rows of 56
    assert bias.requires_grad
    assert encodings[0].relative_position_bias_table.grad.abs().min() > 0


def test_a_cpu_is_given_biases_without_room_for_alignment(given) -> None:
    tokens, encodings, mask = call("rel", torch.float32)
    attend(*tokens, encodings, GRID, mask=mask, impl="fused")
    attend(*tokens, encodings, GRID, impl="fused")
    assert all(bias.is_contiguous() for _, bias in given)


@pytest.mark.parametrize("row", [49, 56])
@pytest.mark.parametrize("name", ["rel", "shaw"])
def test_other_biases_stay_as_small_as_they_are(
    given, name: str, row: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One bias for all windows is not spread over them, and one per entry is not folded."""
    monkeypatch.setattr(fused, "rows_must_align", lambda q: row == 56)
    tokens, encodings, mask = call(name, torch.float32)
    attend(*tokens, encodings, GRID, impl="fused")
    attend(*(t[:WINDOWS] for t in tokens), encodings, GRID, mask=mask, impl="fused")
    entries = 1 if name == "rel" else IMAGES * WINDOWS
    assert [bias.shape[0] for _, bias in given] == [entries, WINDOWS]
    assert all(q.shape[1] == HEADS and bias.stride(2) == row for q, bias in given)
    attend(*tokens, [], GRID, impl="fused")
    assert given[2][1] is None


@pytest.mark.parametrize("keys", [7, 8, 49, 64])
def test_rows_start_at_multiples_of_eight(keys: int) -> None:
    bias = torch.randn(1, 2, 5, keys)
    found = fused.aligned(bias)
    assert torch.equal(found, bias)
    from_table = torch.randn(5, keys, 2).permute(2, 0, 1)[None]
    for one in (found, fused.aligned(from_table)):
        assert one.stride(-1) == 1
        assert all(stride % 8 == 0 for stride in one.stride()[:-1])
    assert (found.data_ptr() == bias.data_ptr()) == (keys % 8 == 0)


def test_where_a_fused_kernel_is_taken_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    class Queries:
        def __init__(self, cuda: bool, dtype: torch.dtype, batch: int) -> None:
            self.is_cuda, self.dtype, self.shape = cuda, dtype, (batch, 3, 49, 32)

    better = [
        fused.fused_is_better(Queries(*facts))
        for facts in (
            (True, torch.bfloat16, 64),
            (True, torch.float32, 65535),
            (False, torch.float32, 64),
            (True, torch.float64, 64),
            (True, torch.bfloat16, 65536),  # beyond CUDA's grid
        )
    ]
    assert better == [True, True, False, False, False]

    narrow, wide = Queries(False, torch.float32, 64), Queries(False, torch.float64, 64)
    with torch.no_grad():
        assert fused.fused_is_better(narrow)
        assert not fused.fused_is_better(wide)
        with torch.autocast("cpu", torch.bfloat16):
            assert not fused.fused_is_better(narrow)
        monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "medium")
        assert not fused.fused_is_better(narrow)

    taken: list[bool] = []
    monkeypatch.setattr(attention, "fused_is_better", lambda q: True)
    monkeypatch.setattr(attention, "fused_attention", lambda q, *_: taken.append(True) or q)
    for name in ("rel", "irpe_v"):
        tokens, encodings, _ = call(name, torch.float32)
        attend(*tokens, encodings, GRID)
    assert taken == [True], "an encoding that needs the attention matrix takes the eager form"


def test_a_form_can_be_set_for_a_whole_model() -> None:
    model, x = loud(tiny(depths=(1, 2), num_heads=(1, 2), out_indices=(0, 1))), picture(60, 90)
    with torch.no_grad():
        expected = model(x)
        found = {}
        for impl in ("eager", "fused", "flex"):
            with use_impl(impl):
                found[impl] = model(x)
        with pytest.raises(ValueError, match="'flex', got 'flash'"):
            use_impl("flash")
        assert torch.equal(model(x)[0], expected[0]), "the form before is back"
    for impl, maps in found.items():
        torch.testing.assert_close(maps, expected, atol=2e-5, rtol=1e-4, msg=impl)
