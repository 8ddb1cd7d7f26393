"""Every registered encoding against every demand of the sweep."""

from __future__ import annotations

from math import cos, pi, sin

import pytest
import torch
from torch import Tensor

from relpos_mm.encodings import AbsoluteTable, Grid, PositionEncoding, Sinusoid2d
from relpos_mm.registry import POSITIONS

from .case import CHANNELS, Case
from .cubic import cubic_vector
from .relative_cases import RELATIVE_CASES
from .rotary_and_map_cases import ROTARY_AND_MAP_CASES
from .sweep import CHECKS


def absolute_vector(encoding: AbsoluteTable, row: int, column: int, grid: Grid) -> Tensor:
    return cubic_vector(encoding.absolute_pos_embed[0], row, column, grid.q)


def waves(position: float, quarter: int, temperature: float) -> list[tuple[float, float]]:
    angles = [position / temperature ** (t / quarter) for t in range(quarter)]
    return [(sin(angle), cos(angle)) for angle in angles]


def plain_vector(encoding: Sinusoid2d, row: int, column: int, grid: Grid) -> Tensor:
    quarter = CHANNELS // 4
    y, x = (waves(p, quarter, encoding.temperature) for p in (row, column))
    first, second = (y, x) if encoding.axis_order == "yx" else (x, y)
    blocks = [[s for s, _ in first], [s for s, _ in second]]
    blocks += [[c for _, c in first], [c for _, c in second]]
    if encoding.split_axes:
        blocks = [blocks[0], blocks[2], blocks[1], blocks[3]]
    return torch.tensor([number for block in blocks for number in block])


def detr_vector(encoding: Sinusoid2d, row: int, column: int, grid: Grid) -> Tensor:
    """The mask summed up along each axis, literally."""
    height, width = grid.q if grid.valid is None else grid.valid[0]
    visible = [[y < height and x < width for x in range(grid.q[1])] for y in range(grid.q[0])]
    y = float(sum(visible[i][column] for i in range(row + 1)))
    x = float(sum(visible[row][j] for j in range(column + 1)))
    if encoding.normalize:
        total_y = sum(visible[i][column] for i in range(grid.q[0]))
        total_x = sum(visible[row][j] for j in range(grid.q[1]))
        y, x = (p / (total + 1e-6) * encoding.scale for p, total in ((y, total_y), (x, total_x)))
    quarter = CHANNELS // 4
    pairs = waves(y, quarter, encoding.temperature) + waves(x, quarter, encoding.temperature)
    return torch.tensor([number for pair in pairs for number in pair])


CASES = {
    "absolute table": Case(
        AbsoluteTable,
        {"embed_dims": CHANNELS, "grid_size": (4, 6)},
        embed=absolute_vector,
        other_size={"grid_size": (9, 5)},
    ),
    "sines": Case(Sinusoid2d, {"embed_dims": CHANNELS}, embed=plain_vector),
    "sines, columns first, axes apart": Case(
        Sinusoid2d,
        {"embed_dims": CHANNELS, "axis_order": "xy", "split_axes": True, "temperature": 20.0},
        embed=plain_vector,
    ),
    "sines of DETR": Case(
        Sinusoid2d,
        {"embed_dims": CHANNELS, "form": "detr", "site": "qk_input"},
        embed=detr_vector,
    ),
    "sines of DETR, not normalised": Case(
        Sinusoid2d,
        {"embed_dims": CHANNELS, "form": "detr", "normalize": False, "scale": 2 * pi},
        embed=detr_vector,
    ),
    **RELATIVE_CASES,
    **ROTARY_AND_MAP_CASES,
}


def shipped() -> list[type[PositionEncoding]]:
    """The package's own classes; other tests may register toys."""
    classes = POSITIONS.module_dict.values()
    return [cls for cls in classes if cls.__module__.startswith("relpos_mm.")]


def test_every_registered_encoding_has_a_case() -> None:
    assert {case.cls for case in CASES.values()} == set(shipped())


def test_slugs_are_unique() -> None:
    assert len({cls.slug for cls in shipped()}) == len(shipped())


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_sweep(case: Case, check) -> None:
    check(case)
