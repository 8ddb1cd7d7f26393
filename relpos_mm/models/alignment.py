"""Whether absolute embeddings repeat in step with the windows of every block."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mmengine.dist import is_main_process

from relpos_mm.encodings.absolute_table import AbsoluteTable
from relpos_mm.encodings.absolute_win import AbsoluteWin
from relpos_mm.encodings.grid import Size

if TYPE_CHECKING:
    from .swin import RelPosSwin


class InterpolatedEmbeddingWarning(UserWarning):
    """An embedding learned under windows is stretched while the windows keep their size."""


@dataclass(frozen=True)
class Alignment:
    """One absolute embedding against the windows of one block, per axis and in stem tokens.

    Attributes:
        encoding: Class name of the embedding.
        block: Dotted name of the block.
        period: Distance after which the part of the embedding that belongs to a place inside a
            window repeats, on the map in question.
        stride: Distance between the block's windows.
        phase: Where the first whole window of the block starts within a period.
    """

    encoding: str
    block: str
    period: tuple[float, float]
    stride: Size
    phase: tuple[float, float]

    @property
    def aligned(self) -> bool:
        """Whether all windows of the block see the same part: a stride is whole periods."""
        periods = zip(self.stride, self.period, strict=True)
        return all(abs(s / p - round(s / p)) < 1e-6 for s, p in periods)


def window_alignment(backbone: RelPosSwin, map_size: Size | None = None) -> list[Alignment]:
    """Compare every learned absolute embedding of a backbone with every block's windows.

    Source: "Window Attention is Bugged", section 3. A table that was trained under windows of w
    tokens becomes w-periodic; on a map s times as large it is stretched to a period of s w tokens.
    A tiled table (absolute-win) has its own period on every map. Fixed sines learn no period and
    are not listed.

    Args:
        backbone: Built backbone.
        map_size: Tokens ``(H, W)`` after the patch embedding. Default: the pre-training grid.
    """
    return [
        Alignment(encoding, block, period, stride, _phase(shift, period))
        for encoding, period in _periods(backbone, map_size)
        for block, stride, shift in _windows(backbone)
    ]


def _periods(
    backbone: RelPosSwin, map_size: Size | None
) -> Iterator[tuple[str, tuple[float, float]]]:
    for encoding in backbone.position.values():
        name = type(encoding).__name__
        if isinstance(encoding, AbsoluteWin):
            yield name, (float(encoding.window_size[0]), float(encoding.window_size[1]))
        elif isinstance(encoding, AbsoluteTable):
            (_, window, _), *_ = _windows(backbone)  # the first stage's, in stem tokens
            grid = encoding.grid_size
            height, width = map_size or grid
            yield name, (window[0] * height / grid[0], window[1] * width / grid[1])


def _windows(backbone: RelPosSwin) -> Iterator[tuple[str, Size, Size]]:
    """Name, distance of windows and shift of every block, in tokens of the stem."""
    for i, stage in enumerate(backbone.stages):
        for j, block in enumerate(stage.blocks):
            height, width = block.attn.window_size
            shift = (height // 2, width // 2) if block.attn.shifted else (0, 0)
            tokens = 2**i
            stride = height * tokens, width * tokens
            yield f"stages.{i}.blocks.{j}", stride, (shift[0] * tokens, shift[1] * tokens)


def _phase(shift: Size, period: tuple[float, float]) -> tuple[float, float]:
    return shift[0] % period[0], shift[1] % period[1]


def warn_if_stretched(backbone: RelPosSwin) -> None:
    """Warn, once per run, about embeddings that leave step with the windows.

    A dense backbone (``small_map="pad"``) takes maps of any size; one of twice the pre-training
    grid in height and three times in width stands for them. A classifier keeps its grid.
    """
    if not is_main_process():
        return
    found = window_alignment(backbone)
    if backbone.small_map == "pad":
        grids = {e.grid_size for e in backbone.position.values() if isinstance(e, AbsoluteTable)}
        for height, width in grids:
            found += window_alignment(backbone, (2 * height, 3 * width))
    for name in sorted({item.encoding for item in found if not item.aligned}):
        of_name = {item.block: item for item in found if item.encoding == name}  # the larger map
        off = [item for item in of_name.values() if not item.aligned]
        warnings.warn(_message(name, off, len(of_name)), InterpolatedEmbeddingWarning, stacklevel=4)


def _message(name: str, off: list[Alignment], blocks: int) -> str:
    first = off[0]
    stride, period = first.stride, first.period
    if name == "AbsoluteWin":
        cause = f"its tile of {period[0]:g} x {period[1]:g} tokens is no divisor of the windows"
        remedy = "leave its window_size out"
    else:
        cause = (
            "it is stretched to each map while the windows keep their size (on a map of 2 x 3 "
            f"times the pre-training grid its period becomes {period[0]:g} x {period[1]:g} tokens)"
        )
        remedy = "AbsoluteWin stays in step on every map; as a published baseline it is as meant"
    return (
        f"{name} is out of step with the windows of {len(off)} of {blocks} blocks, such as "
        f"{first.block} with a window every {stride[0]} x {stride[1]} tokens: {cause}. Published "
        f'as the bug of "Window Attention is Bugged"; {remedy}'
    )
