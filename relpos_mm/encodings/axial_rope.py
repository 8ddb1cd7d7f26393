"""Axial rotary encoding: half of the channel pairs turn with the column, half with the row."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from relpos_mm.registry import POSITIONS

from .grid import Size
from .rotary import AxisOrder, Normalize, Pairing, Rotary, frequencies


@POSITIONS.register_module()
class AxialRope(Rotary):
    """Pair t of q and k turns by ``p w_t``, ``w_t = theta^(-4 t / d)``, p the column or the row.

    Source: "Rotary Position Embedding for Vision Transformer" (RoPE-Axial). A logit then depends on
    the offset of its tokens alone, and multiplicatively on the content. Scale rule: the rotated
    product is scaled like any. Sign rule: q and k turn alike by their own position.

    Defaults are rope-vit's (theta 100 in its ViT, 50 in its Swin): positions are indices, columns
    fill the first half of the pairs (``xy``), neighbouring channels are pairs. SAM 2 has the same
    with theta 10000. timm takes ``axis_order="yx"`` for its ``ij`` grids and can rescale indices to
    a reference grid (``ref_size``). DINOv3 is ``normalize_coords="separate"`` (or ``min``,
    ``max``), ``axis_order="yx"``, ``pairing="half"``; its released periods are rounded to
    bfloat16, these are not. Indices extrapolate to larger maps, normalised ones interpolate.

    No parameters; angles are float32 or better whatever the model runs in.

    Args:
        embed_dims: Channels C.
        num_heads: Heads h; the head width must be a multiple of 4.
        theta: Base of the frequencies.
        normalize_coords: Positions in [-1, 1] times 2 pi over each axis (``separate``) or by the
            smaller or larger side; None keeps indices.
        ref_size: Rescale indices to this grid ``(H, W)``.
        axis_order: ``xy`` or ``yx``, which axis turns the first half of the pairs.
        pairing: ``neighbour`` or ``half``.

    Raises:
        ValueError: A head width that is no multiple of 4, or an unknown option.
    """

    slug: ClassVar[str] = "rope_axial"

    def __init__(
        self,
        *,
        embed_dims: int,
        num_heads: int,
        theta: float = 100.0,
        normalize_coords: Normalize | None = None,
        ref_size: int | Size | None = None,
        axis_order: AxisOrder = "xy",
        pairing: Pairing = "neighbour",
    ) -> None:
        super().__init__(
            embed_dims, num_heads, normalize_coords, ref_size, axis_order, pairing, theta
        )
        self.theta = theta

    def angles(self, positions: Tensor) -> Tensor:
        bands = frequencies(self.head_dim, self.theta, positions.dtype, positions.device)
        return (positions[..., None] * bands).flatten(-2).unsqueeze(1)

    def extra_repr(self) -> str:
        return f"theta={self.theta}, {super().extra_repr()}"
