"""Pure index arithmetic of (shifted) windows: pad, roll and partition as one gather.

A map of ``H x W`` tokens is padded at the bottom and right to whole windows, rolled up and left by
the shift and cut into windows. All of it is one index per window slot (:func:`window_index`), and
:func:`token_slots` is its inverse on real tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from relpos_mm.encodings.grid import Size
from relpos_mm.encodings.made_once import made_once


def padded_size(size: Size, window: Size) -> Size:
    """Size of the map after padding it to whole windows."""
    return -(-size[0] // window[0]) * window[0], -(-size[1] // window[1]) * window[1]


def partition(grid: Tensor, window: Size) -> Tensor:
    """Cut a map ``(H, W)`` of whole windows into ``(windows, Wh * Ww)``, both row-major."""
    rows, columns = grid.shape[0] // window[0], grid.shape[1] // window[1]
    windows = grid.view(rows, window[0], columns, window[1]).transpose(1, 2)
    return windows.reshape(rows * columns, window[0] * window[1])


def window_index(size: Size, window: Size, shift: Size) -> Tensor:
    """Token that stands in every window slot, ``H * W`` where the slot is padding.

    Returns:
        ``(windows, Wh * Ww)`` int64, windows in row-major order.
    """
    height, width = padded_size(size, window)
    padded = torch.full((height, width), size[0] * size[1], dtype=torch.int64)
    padded[: size[0], : size[1]] = torch.arange(size[0] * size[1]).view(size)
    return partition(padded.roll((-shift[0], -shift[1]), dims=(0, 1)), window)


def token_slots(index: Tensor, num_tokens: int) -> Tensor:
    """Window slot of every token ``(num_tokens,)``: the inverse of :func:`window_index`."""
    return _ordered_slots(index)[:num_tokens]


def _ordered_slots(index: Tensor) -> Tensor:
    """Slots in the order of their tokens; padding, the highest number, comes last."""
    return index.flatten().argsort(stable=True)


def shift_mask(size: Size, window: Size, shift: Size) -> Tensor:
    """Which pairs of a shifted window may attend to each other.

    Rolling brings opposite borders into one window; only tokens that were neighbours before it may
    meet. Regions are taken on the padded size, as in the published code.

    Returns:
        ``(windows, N, N)`` bool with ``N = Wh * Ww``, True where attention is allowed.
    """
    height, width = padded_size(size, window)
    rows = _region(height, window[0], shift[0])
    columns = _region(width, window[1], shift[1])
    regions = partition(rows[:, None] * 3 + columns[None, :], window)
    return regions[:, :, None] == regions[:, None, :]


def _region(length: int, window: int, shift: int) -> Tensor:
    """Region of each rolled position of one axis; one region when nothing was shifted."""
    if shift == 0:
        return torch.zeros(length, dtype=torch.int64)
    position = torch.arange(length)
    return (position >= length - window).long() + (position >= length - shift).long()


Cut = tuple[Size, Size, Size]


@dataclass(frozen=True)
class WindowPlan:
    """All that one block needs to cut a map into windows and to put it back.

    Attributes:
        cut: Size of the map, window and shift.
        index: ``(windows, N)`` token of every slot; ``H * W`` is the padding row.
        slots: ``(H * W,)`` slot of every token.
        padding: The slots without a token.
        mask: ``(windows, 1, N, N)`` bool, True = may attend; ``None`` when all may.
        num_windows: Windows per image.
        padded: Whether any slot is padding.
    """

    cut: Cut
    index: Tensor
    slots: Tensor
    padding: Tensor
    mask: Tensor | None
    num_windows: int
    padded: bool


@made_once(maxsize=64)
def window_plan(
    size: Size, window: Size, shift: Size, mask_padding: bool, device: torch.device
) -> WindowPlan:
    """Build the plan of a map size once; the cache is bounded and keyed by every argument."""
    # Made under another default device it would be wrong for every later call.
    with torch.device("cpu"):
        index = window_index(size, window, shift)
        num_tokens = size[0] * size[1]
        mask = shift_mask(size, window, shift) if any(shift) else None
        if mask_padding and padded_size(size, window) != size:
            real = index < num_tokens
            # A slot always sees itself: a row of nothing but padding must still have a softmax.
            seen = real[:, None, :] | torch.eye(index.shape[1], dtype=torch.bool)
            mask = seen if mask is None else mask & seen
        slots = _ordered_slots(index)
        return WindowPlan(
            cut=(size, window, shift),
            index=index.to(device),
            slots=slots[:num_tokens].to(device),
            padding=slots[num_tokens:].to(device),
            mask=None if mask is None else mask[:, None].to(device),
            num_windows=index.shape[0],
            padded=index.numel() > num_tokens,
        )


def content_mask(plan: WindowPlan, content: Tensor) -> Tensor:
    """Mask of a plan that also hides what is no content of a padded picture.

    Args:
        plan: Made with ``mask_padding``, so that slots without a token are hidden too.
        content: ``(B, H * W)`` bool, True = token of the picture.

    Returns:
        ``(B * windows, 1, N, N)`` bool, image-major, True = may attend.
    """
    slots = F.pad(content, (0, 1))[:, plan.index].unsqueeze(2)  # (B, windows, 1, N)
    # A slot always sees itself, see window_plan.
    seen = slots | torch.eye(slots.shape[-1], dtype=torch.bool, device=slots.device)
    seen = seen if plan.mask is None else seen & plan.mask[:, 0]
    return seen.flatten(0, 1)[:, None]
