"""Offset sets, caches and the symmetries that relative encodings share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from relpos_mm.encodings import (
    Alibi2d,
    DecomposedBias,
    DirectedDistance,
    Disentangled,
    DynamicBias,
    Grid,
    HuangRelative,
    LogCoordBias,
    PositionEncoding,
    SasaRelative,
    ShawRelative,
    TransformerXLRelative,
    contextual,
    decomposed_bias,
    directed_distance,
    disentangled,
    distances,
    log_coord_bias,
    offset_vectors,
    offsets,
)
from relpos_mm.encodings import transformer_xl_relative as txl
from relpos_mm.encodings.offsets import offset_set
from relpos_mm.models import attend

CACHES = {
    "offset_set": offsets.offset_set,
    "key_axes": contextual.key_axes,
    "clipped_axis": offset_vectors.clipped_axis,
    "clipped_index": offset_vectors.clipped_index,
    "finer_index": decomposed_bias.finer_index,
    "log_coords": log_coord_bias.log_coords,
    "offset_waves": txl.offset_waves,
    "used_buckets": disentangled.used_buckets,
    "distances": distances._distances,
    "hidden_pairs": directed_distance.hidden_pairs,
}
SIZES = {"embed_dims": 16, "num_heads": 2}
ALL: dict[str, Callable[[], PositionEncoding]] = {
    "dynamic": lambda: DynamicBias(**SIZES),
    "log coordinates": lambda: LogCoordBias(num_heads=2, window_size=(25, 42)),
    "decomposed": lambda: DecomposedBias(**SIZES, window_size=(5, 7), mode="centre"),
    "shaw": lambda: ShawRelative(**SIZES),
    "shaw, cross": lambda: ShawRelative(**SIZES, mapping="cross"),
    "huang": lambda: HuangRelative(**SIZES),
    "transformer-xl": lambda: TransformerXLRelative(**SIZES),
    "sasa": lambda: SasaRelative(**SIZES, window_size=(5, 7)),
    "disentangled": lambda: Disentangled(**SIZES),
    "alibi": lambda: Alibi2d(num_heads=2),
    "look here": lambda: DirectedDistance(num_heads=2),
}


@pytest.mark.parametrize("size", [(4, 7), (7, 4), (1, 1), (1, 6)])
def test_every_offset_once(size: tuple[int, int]) -> None:
    """B014: as many offsets as the window has, rising, and the pair's own offset at its index."""
    found, index = offset_set(size, size)
    assert len(found) == (2 * size[0] - 1) * (2 * size[1] - 1)
    assert found.tolist() == sorted(found.tolist())
    assert torch.equal(found[index], Grid(size).offsets())


@pytest.mark.parametrize(("q", "k"), [((2, 3), (4, 6)), ((4, 6), (2, 3)), ((5, 3), (3, 7))])
def test_pooled_offsets_equal_the_grids(q: tuple[int, int], k: tuple[int, int]) -> None:
    found, index = offset_set(q, k, (2.0, 3.0))
    expected = Grid(q, k, step=(2.0, 3.0)).offsets()
    torch.testing.assert_close(found[index], expected, atol=2e-6, rtol=0)
    assert len(found.unique(dim=0)) == len(found)


def test_far_offsets_stay_different() -> None:
    found, _ = offset_set((2, 320), (2, 320))
    assert found.dtype == torch.float32
    assert len(found.unique(dim=0)) == 3 * 639


@pytest.mark.parametrize("make", ALL.values(), ids=ALL.keys())
def test_alternating_sizes_build_twice(make: Callable[[], PositionEncoding]) -> None:
    """Caches are bounded and hold both orientations; what they hold may enter autograd."""
    for cache in CACHES.values():
        assert cache.cache_info().maxsize is not None
        cache.cache_clear()
    encoding = make()
    small = {size: torch.randn(1, 2, size[0] * size[1], 8) for size in ((5, 6), (6, 5))}
    with torch.inference_mode():
        for size, q in small.items():
            attend(q, q, q, [encoding], Grid(size))
    built = {name: cache.cache_info().misses for name, cache in CACHES.items()}
    assert any(built.values())
    for _ in range(2):
        for size, q in small.items():
            for prefix in (0, 2):
                x = torch.cat((q[:, :, :prefix], q), dim=2).requires_grad_()
                attend(x, x, x, [encoding], Grid(size, prefix=prefix)).sum().backward()
    assert {name: cache.cache_info().misses for name, cache in CACHES.items()} == built


@pytest.mark.parametrize(
    "make",
    [
        lambda: ShawRelative(**SIZES, values=True),
        lambda: HuangRelative(**SIZES),
        lambda: Disentangled(**SIZES),
    ],
    ids=["shaw", "huang", "disentangled"],
)
def test_block_by_block_equals_whole(make: Callable[[], PositionEncoding]) -> None:
    """Large maps on a CPU never see the dense term; results and gradients are the same."""
    torch.manual_seed(0)
    encoding, grid = make().double(), Grid((16, 33))
    results = []
    for impl in ("auto", "eager"):
        generator = torch.Generator().manual_seed(1)
        q, k, v = (
            torch.randn(1, 2, 528, 8, dtype=torch.float64, generator=generator).requires_grad_()
            for _ in range(3)
        )
        encoding.zero_grad()
        out = attend(q, k, v, [encoding], grid, impl=impl)
        out.square().sum().backward()
        results.append([out, *(t.grad for t in (q, k, v, *encoding.parameters()))])
    torch.testing.assert_close(results[0], results[1])


def turned(encoding: PositionEncoding) -> PositionEncoding:
    """The same encoding with rows and columns exchanged in its parameters."""
    other = type(encoding)(**_ARGUMENTS[type(encoding)](True))
    state = {}
    for name, value in encoding.state_dict().items():
        swaps = {"rows": "columns", "columns": "rows", "_h": "_w", "_w": "_h"}
        end = next((end for end in swaps if name.endswith(end)), "")
        key = name.removesuffix(end) + swaps.get(end, "")
        if name.endswith("table"):
            height, width = (low + high + 1 for low, high in encoding.key_vectors.reach)
            value = value.unflatten(-2, (height, width)).transpose(-3, -2).flatten(-3, -2)
        elif name == "r_net.weight":
            value = torch.cat(value.chunk(2, dim=1)[::-1], dim=1)
        elif name in ("pos_proj.weight", "cpb_mlp.0.weight"):
            value = value.flip(1)
        state[key] = value
    other.load_state_dict(state)
    return other.double()


def _window(turn: bool) -> tuple[int, int]:
    return (4, 3) if turn else (3, 4)


_ARGUMENTS: dict[type[PositionEncoding], Callable[[bool], dict]] = {
    DynamicBias: lambda turn: SIZES,
    LogCoordBias: lambda turn: {"num_heads": 2, "window_size": _window(turn)},
    DecomposedBias: lambda turn: {**SIZES, "window_size": _window(turn), "zero_init": False},
    ShawRelative: lambda turn: {**SIZES, "clip": (2, 1) if turn else (1, 2), "values": True},
    TransformerXLRelative: lambda turn: SIZES,
    Disentangled: lambda turn: SIZES,
    Alibi2d: lambda turn: {"num_heads": 2},
}


@pytest.mark.parametrize("cls", _ARGUMENTS, ids=lambda cls: cls.__name__)
def test_a_transposed_map_gives_the_transposed_result(cls: type[PositionEncoding]) -> None:
    torch.manual_seed(0)
    encoding = cls(**_ARGUMENTS[cls](False)).double()
    q, k, v = torch.randn(3, 2, 2, 12, 8, dtype=torch.float64)
    out = attend(q, k, v, [encoding], Grid((3, 4)))

    def turn(x: Tensor) -> Tensor:
        return x.unflatten(2, (3, 4)).transpose(2, 3).flatten(2, 3)

    expected = turn(out)
    got = attend(turn(q), turn(k), turn(v), [turned(encoding)], Grid((4, 3)))
    torch.testing.assert_close(got, expected)
    with_own_axes = attend(turn(q), turn(k), turn(v), [encoding], Grid((3, 4)))
    assert cls is Alibi2d or not torch.allclose(with_own_axes, expected)
