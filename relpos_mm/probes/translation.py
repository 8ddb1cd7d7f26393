"""What becomes of a stage's map when the picture moves: patch grid, window grid, absolute place."""

from __future__ import annotations

import argparse
import math
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from relpos_mm.engine.errors import UserError
from relpos_mm.engine.options import count
from relpos_mm.models import RelPosSwin

from .placing import Placing, change, picture_of, place, stage_outputs, strides, swin_of
from .probe import PROBES, Probe
from .record import Curve, Findings
from .subject import Subject

_FARTHEST_PX = 64


def periods(backbone: RelPosSwin) -> list[int]:
    """Return, per stage, the shift in pixels that moves all its windows and all earlier ones whole.

    A map then moves by whole windows: whatever it changes by is due to absolute place.
    """
    found, so_far = [], 1
    for stage, stride in zip(backbone.stages, strides(backbone), strict=True):
        so_far = math.lcm(so_far, *(stride * side for side in stage.blocks[0].attn.window_size))
        found.append(so_far)
    return found


def reach(backbone: RelPosSwin) -> int:
    """Return how far in pixels a pixel can act through attention, patches and their merging."""
    total = 0
    for stage, stride in zip(backbone.stages, strides(backbone), strict=True):
        total += stride + sum((max(b.attn.window_size) - 1) * stride for b in stage.blocks)
    return total


@PROBES.register_module("translation")
class Translation(Probe):
    """Move a picture on an empty canvas of fixed size, move the maps back, and compare.

    The distance within the picture is split by what the shift leaves in place. Shifts by whole
    windows leave patches and windows where they are relative to the picture, so only absolute
    place is left (*leakage*). Shifts by whole tokens add the place in the window (*phase*), all
    others what the patch grid cuts differently (*aliasing*; their maps are moved back by bilinear
    interpolation, which is part of it). The three add up to the distance at the last kind.

    The margin keeps the canvas's border out of reach by default; a smaller one lets in what the
    border gives away.
    """

    about: ClassVar[str] = "shift the picture: patch aliasing, window phase and absolute leakage"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--step", type=_step, default=4, metavar="PX", help="of shifts from 0 to 64 px"
        )
        parser.add_argument(
            "--margin",
            type=int,
            metavar="PX",
            help="least distance from the canvas's border (default: what the blocks can reach)",
        )
        parser.add_argument("--pictures", type=count, default=2, help="of the test set")

    def measure(self, subject: Subject, settings: dict[str, Any]) -> Findings:
        backbone = swin_of(subject)
        margin = reach(backbone) if settings["margin"] is None else settings["margin"]
        if margin < 0:
            raise UserError(f"--margin: {margin} px is below 0")
        shifts = shifts_of(backbone, settings["step"])
        rows = []
        for batch in subject.pictures(settings["pictures"]):
            picture, _ = picture_of(subject.model, batch)
            rows.append(distances(backbone, picture, shifts, margin))
        table = np.mean(rows, axis=0)  # (shifts, stages)
        found = Findings(details={"margin_px": margin, "periods_px": periods(backbone)})
        found.notes.append(f"least distance from the border of the canvas: {margin} px")
        near = [at for at, shift in enumerate(shifts) if shift <= _FARTHEST_PX]
        for stage, column in enumerate(table.T):
            parts = split(shifts, list(column), strides(backbone)[stage], periods(backbone)[stage])
            for name, value in parts.items():
                found.numbers[f"stage {stage + 1}, {name}"] = value
            found.curves.append(
                Curve(
                    f"stage {stage + 1}",
                    [shifts[at] for at in near],
                    [float(column[at]) for at in near],
                    "shift, px",
                    "relative change",
                )
            )
        return found


def shifts_of(backbone: RelPosSwin, step: int) -> list[int]:
    """Return the shifts to look at: 0 to 64 px, two within the first patch, tokens, whole windows.

    A token of every stage is among them whatever the step: without it no phase would be seen.
    """
    within = [backbone.patch_size // 4, backbone.patch_size // 2]
    near = range(0, _FARTHEST_PX + 1, step)
    return sorted({*near, *(s for s in within if s), *strides(backbone), *periods(backbone)})


def _step(text: str) -> int:
    """Read ``--step``.

    Raises:
        argparse.ArgumentTypeError: It is no number of pixels within the range of shifts.
    """
    step = count(text)
    if step > _FARTHEST_PX:
        raise argparse.ArgumentTypeError(f"{step} px is beyond the last shift, {_FARTHEST_PX} px")
    return step


@torch.no_grad()
def distances(
    backbone: RelPosSwin, picture: Tensor, shifts: list[int], margin: int
) -> list[list[float]]:
    """Return the change of each stage's map within the picture, for every shift.

    Args:
        backbone: In evaluation mode.
        picture: Normalised ``(1, 3, h, w)``.
        shifts: In pixels, downwards and to the right.
        margin: Least distance in pixels between picture and border.
    """
    whole = periods(backbone)[-1]
    start = -(-margin // whole) * whole
    height, width = (
        -(-(start + side + max(shifts) + margin) // whole) * whole for side in picture.shape[2:]
    )
    found: list[list[Tensor]] = []
    for shift in [0, *shifts]:
        at = (start + shift, start + shift)
        with stage_outputs(backbone) as maps:
            backbone(place(picture, Placing(canvas=(height, width), at=at)))
        found.append(
            [
                _moved_back(stage[0], start, shift, picture.shape[2:], stride)
                for stage, stride in zip(maps, strides(backbone), strict=True)
            ]
        )
    still, *moved = found
    return [[change(*pair) for pair in zip(still, row, strict=True)] for row in moved]


def _moved_back(stage: Tensor, start: int, shift: int, size: torch.Size, stride: int) -> Tensor:
    """Return the tokens that lie whole in the picture, as they would stand without the shift."""
    whole, part = divmod(shift, stride)
    first = start // stride + whole
    for axis, side in ((1, size[0]), (2, size[1])):
        tokens = max(1, side // stride)
        here = stage.narrow(axis, first, tokens)
        if part:
            next_one = stage.narrow(axis, first + 1, tokens)
            here = torch.lerp(here, next_one, part / stride)
        stage = here
    return stage


def split(
    shifts: list[int], distance: list[float], stride: int, period: int
) -> dict[str, float | None]:
    """Split the distance of one stage: mean per kind of shift, each less the kind before it.

    Without shifts of a kind there is neither its part nor the next one's, which would contain it.

    Args:
        shifts: In pixels.
        distance: Change at each of them.
        stride: Pixels per token.
        period: Pixels per whole window, of this stage and those before it.
    """
    kinds: dict[str, list[float]] = {"leakage": [], "phase": [], "aliasing": []}
    for shift, value in zip(shifts, distance, strict=True):
        if shift:
            kind = "aliasing" if shift % stride else "phase" if shift % period else "leakage"
            kinds[kind].append(value)
    parts: dict[str, float | None] = {}
    before: float | None = 0.0
    for kind, values in kinds.items():
        mean = float(np.mean(values)) if values else None
        parts[kind] = None if mean is None or before is None else mean - before
        before = mean
    return parts
