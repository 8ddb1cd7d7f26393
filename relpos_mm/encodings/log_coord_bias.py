"""Log-spaced continuous position bias and cosine attention (Swin Transformer V2)."""

from __future__ import annotations

import logging
from math import log
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from mmengine.logging import print_log
from mmengine.utils import to_2tuple
from torch import Tensor, nn

from relpos_mm.registry import POSITIONS

from .arguments import require_counts
from .base import PositionEncoding, Resized
from .grid import Grid, Size, as_size
from .made_once import made_once
from .offsets import as_table, gather_bias, offset_set
from .precision import call_wide, widen
from .resize import ResizeMode

_WINDOW = "pretrained_window_size"


@POSITIONS.register_module()
class LogCoordBias(PositionEncoding):
    """``B = 16 sigmoid(W2 relu(W1 c + b1))``, ``c = sign(o) log2(1 + 8 |o| / (M - 1)) / log2(8)``.

    Source: Swin Transformer V2, section 3.3 and equations 3 to 5; the factor 8, the division by
    log2(8) and the 16 sigmoid are the released code's. M is the window of PRE-TRAINING, per axis; a
    larger window only extends the coordinates. A side of 1 has the offset 0 alone and divides by 1.

    With ``cosine`` the content logits are ``tau cos(q, k)``, ``tau = exp(min(logit_scale, log
    100))`` per head, started at 10 (equation 2). The released blocks also have no key bias and
    normalise after the residual branch; both belong to the host.

    Scale rule: B is added after scaling; under ``cosine`` there is no ``1 / sqrt(d)`` at all. A
    host that passes a ``scale`` of its own multiplies the cosine by ``scale * sqrt(d)``. Sign rule:
    offsets are query minus key, rows first, in tokens. Without ``cosine`` B's range of 0 to 16 is
    large against dot products of unit variance; it starts near the constant 8, which softmax
    ignores.

    Parameter names are the public ones: ``cpb_mlp.0``, ``cpb_mlp.2`` (without bias) and
    ``logit_scale (h, 1, 1)``. None is decayed, as released. Coordinates are never saved; the
    reference window travels with the state dict's metadata, so a checkpoint loaded into a larger
    window keeps its meaning.

    Args:
        num_heads: Attention heads h.
        window_size: Window ``(Wh, Ww)``; only sets the reference when none is given.
        pretrained_window_size: Reference window M. Default: that of the checkpoint that is loaded,
            before that ``window_size``. ``(0, 0)`` means the same, as in the released configs.
        hidden: Width of the network.
        cosine: Replace the dot product by the scaled cosine, through ``rotate``.
    """

    slug: ClassVar[str] = "logcpb"
    free: ClassVar[frozenset[str]] = frozenset({"pretrained_window_size", "hidden"})

    def __init__(
        self,
        *,
        num_heads: int,
        window_size: int | Size,
        pretrained_window_size: int | Size | None = None,
        hidden: int = 512,
        cosine: bool = False,
    ) -> None:
        super().__init__()
        require_counts("LogCoordBias", num_heads=num_heads, hidden=hidden)
        given = pretrained_window_size or 0
        self._given = tuple(to_2tuple(given)) != (0, 0)
        self.pretrained_window_size = (
            as_size("LogCoordBias: pretrained_window_size", given)
            if self._given
            else as_size("LogCoordBias: window_size", window_size)
        )
        self.cosine = cosine
        self.cpb_mlp = nn.Sequential(
            nn.Linear(2, hidden), nn.ReLU(), nn.Linear(hidden, num_heads, bias=False)
        )
        for linear in (self.cpb_mlp[0], self.cpb_mlp[2]):
            nn.init.trunc_normal_(linear.weight, std=0.02)  # type: ignore[arg-type]
        nn.init.zeros_(self.cpb_mlp[0].bias)  # type: ignore[arg-type]
        if cosine:
            self.logit_scale = nn.Parameter(torch.full((num_heads, 1, 1), log(10.0)))
        self._register_state_dict_hook(_record_window)

    def bias(self, q: Tensor, k: Tensor, grid: Grid, scale: float) -> Tensor:
        return gather_bias(*self._by_offset(grid))

    def offset_table(self, grid: Grid, device: torch.device) -> Tensor | None:
        return as_table(self._by_offset(grid)[0], grid)

    def _by_offset(self, grid: Grid) -> tuple[Tensor, Tensor]:
        """Bias ``(P, h)`` of the distinct offsets, and the offset of each pair."""
        device = next(self.cpb_mlp.parameters()).device
        coords, index = log_coords(grid.q, grid.k, self.pretrained_window_size, device)
        return 16 * torch.sigmoid(call_wide(self.cpb_mlp, coords)), index

    def rotate(self, q: Tensor, k: Tensor, grid: Grid) -> tuple[Tensor, Tensor]:
        if not self.cosine:
            return q, k
        # Squares of half-precision activations overflow, and 1e-12 is zero there.
        with torch.autocast(q.device.type, enabled=False):
            tau = widen(self.logit_scale).clamp(max=log(100.0)).exp()
            unit_q, unit_k = F.normalize(widen(q), dim=-1), F.normalize(widen(k), dim=-1)
            unit_q = unit_q * (tau * q.shape[-1] ** 0.5)  # undoes the host's 1 / sqrt(d)
        return unit_q.to(q.dtype), unit_k.to(k.dtype)

    def transfer(
        self,
        state: dict[str, Tensor],
        prefix: str,
        *,
        mode: ResizeMode = "scale",
        source: dict[str, Size] | None = None,
    ) -> list[Resized]:
        """Nothing to resize; take over the checkpoint's reference window.

        It is read off the coordinates that the released code saves (``relative_coords_table``,
        taken out of ``state``), else it is ``source["pretrained_window_size"]``, else
        ``source["window_size"]``: a checkpoint without a reference of its own used its window.
        """
        source = source or {}
        window = source.get(_WINDOW) or source.get("window_size")
        coords = state.pop(f"{prefix}relative_coords_table", None)
        if coords is not None:
            window = reference_of(coords)
        if window is not None and f"{prefix}cpb_mlp.0.weight" in state:
            self._adopt((window[0], window[1]), prefix)
        return []

    def _adopt(self, window: Size, prefix: str) -> None:
        """Use the reference window of a checkpoint, unless the config named another one."""
        if window == self.pretrained_window_size:
            return
        ours = self.pretrained_window_size
        if self._given:
            message = (
                f"{prefix}{_WINDOW} is {window} in the checkpoint, {ours} in the config is used"
            )
        else:
            self.pretrained_window_size = window
            message = f"{prefix}{_WINDOW} is {window}, as in the checkpoint (it was {ours})"
        print_log(message, logger="current")

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        window = args[0].get(_WINDOW)  # local metadata of this module
        named = window or self._given or f"{prefix}relative_coords_table" in state_dict
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
        if window:
            self._adopt((window[0], window[1]), prefix)
        elif not named:
            print_log(
                f"{prefix}{_WINDOW}: the checkpoint does not name its reference window, "
                f"{self.pretrained_window_size} is used; set it if the checkpoint had another one",
                logger="current",
                level=logging.WARNING,
            )

    def extra_repr(self) -> str:
        return f"pretrained_window_size={self.pretrained_window_size}, cosine={self.cosine}"


def _record_window(
    module: LogCoordBias, state: dict[str, Tensor], prefix: str, metadata: dict[str, Any]
) -> None:
    """Write the reference window beside the module's version, where no loader expects a tensor."""
    metadata[_WINDOW] = module.pretrained_window_size


@made_once(maxsize=64)
def log_coords(
    query_size: Size, key_size: Size, reference: Size, device: torch.device | str = "cpu"
) -> tuple[Tensor, Tensor]:
    """Log-spaced coordinates ``(P, 2)`` of the distinct offsets, and their index ``(Nq, Nk)``."""
    offsets, index = offset_set(query_size, key_size, device=device)
    longest = torch.tensor([max(side - 1, 1) for side in reference], device=device)
    coords = offsets / longest * 8
    return coords.sign() * torch.log2(coords.abs() + 1.0) / 3.0, index  # log2(8) = 3


def reference_of(coords: Tensor) -> Size:
    """Reference window of a saved table of coordinates ``(1, 2 Wh - 1, 2 Ww - 1, 2)``.

    Raises:
        ValueError: The coordinates are not the released code's.
    """
    window = []
    for axis in (1, 2):
        line = coords.double().select(3 - axis, 0).select(-1, axis - 1).flatten()
        if len(line) == 1:
            window.append(1)
            continue
        after_centre = line[len(line) // 2 + 1].item()
        longest = 8 / (2 ** (3 * after_centre) - 1) if after_centre > 0 else 0.0
        if abs(longest - round(longest)) > 1e-2 or round(longest) < 1:
            raise ValueError(
                f"relative_coords_table: {after_centre} is no log-spaced coordinate of 1"
            )
        window.append(round(longest) + 1)
    return window[0], window[1]
