"""Projected sinusoids of the offset and two learned query vectors (Transformer-XL)."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from relpos_mm.registry import POSITIONS

from .arguments import head_width, require_counts, require_positive
from .base import PositionEncoding
from .contextual import axial_term, project
from .grid import Grid
from .made_once import made_once
from .offsets import axis_set


@POSITIONS.register_module()
class TransformerXLRelative(PositionEncoding):
    """``e = [(q + u) . k + (q + v) . W_R s(dy, dx)] / sqrt(d)`` with ``s = [s(dy) ; s(dx)]``.

    ``s(o)`` has a sine block, then a cosine block, frequencies ``temperature^(-2 t / n)`` for n
    channels. Source: Transformer-XL, section 3.3, in the bidirectional form of XLNet's public code
    (the original is causal). No public 2-D code exists; with no row offset the row half adds a
    constant per query, and ``pos_dims = 2 C`` then holds the 1-D method exactly in the column half
    of W_R.

    Scale rule: everything is inside 1/sqrt(d). Sign rule: offsets are query minus key, rows first.
    W_R is linear, so the term is a sum of a row and a column term and factors exactly; no vector
    per offset pair is computed. ``rotate`` adds u, so in a list this encoding stands before or
    after rotary ones by choice.

    Any grid works without a change to the checkpoint. Sinusoids of short offsets hardly use the low
    frequencies: lower the temperature (100, say) for windows. Weights, u and v start from N(0,
    0.02). The original decays all of them; here position parameters are not decayed. Names are
    public: ``r_net.weight (C, pos_dims)``, ``r_w_bias`` (u) and ``r_r_bias`` (v), both ``(h, d)``.

    Args:
        embed_dims: Channels C; d = C / h.
        num_heads: Attention heads h.
        temperature: Base of the frequencies.
        pos_dims: Width of ``s``, both axes together, a multiple of 4; C by default.
        factored: Hand the term over as ``a @ b^T``, see ``DecomposedBias``.

    Raises:
        ValueError: ``pos_dims`` is no multiple of 4, or ``num_heads`` does not divide
            ``embed_dims``.
    """

    slug: ClassVar[str] = "txl"
    free: ClassVar[frozenset[str]] = frozenset({"pos_dims", "factored"})

    def __init__(
        self,
        *,
        embed_dims: int,
        num_heads: int,
        temperature: float = 10000.0,
        pos_dims: int | None = None,
        factored: bool = True,
    ) -> None:
        super().__init__()
        head_dims = head_width("TransformerXLRelative", embed_dims, num_heads)
        width = embed_dims if pos_dims is None else pos_dims
        require_counts("TransformerXLRelative", pos_dims=width)
        require_positive("TransformerXLRelative", temperature=temperature)
        if width % 4:
            raise ValueError(
                f"TransformerXLRelative: {width} channels for the sinusoids of two axes; "
                "a multiple of 4 is needed, set pos_dims"
            )
        self.num_heads, self.temperature, self.factored = num_heads, temperature, factored
        self.r_net = nn.Linear(width, embed_dims, bias=False)
        self.r_w_bias = nn.Parameter(torch.empty(num_heads, head_dims))
        self.r_r_bias = nn.Parameter(torch.empty(num_heads, head_dims))
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.02)

    def rotate(self, q: Tensor, k: Tensor, grid: Grid) -> tuple[Tensor, Tensor]:
        return q + self.r_w_bias[:, None].to(q.dtype), k

    def bias(
        self, q: Tensor, k: Tensor, grid: Grid, scale: float
    ) -> Tensor | tuple[Tensor, Tensor]:
        query = (q + self.r_r_bias[:, None].to(q.dtype)) * scale
        products, indices = [], []
        for axis, weight in enumerate(self.r_net.weight.chunk(2, dim=1)):
            waves, index = offset_waves(
                grid.q[axis], grid.k[axis], weight.shape[1], self.temperature, q.device
            )
            vectors = F.linear(waves.to(weight.dtype), weight)  # (P, C)
            vectors = vectors.unflatten(1, (self.num_heads, -1)).transpose(0, 1)  # (h, P, d)
            products.append(project(query, vectors))
            indices.append(index)
        return axial_term(products, indices, grid, self.factored)

    def extra_repr(self) -> str:
        return f"num_heads={self.num_heads}, temperature={self.temperature}"


@made_once(maxsize=128)
def offset_waves(
    queries: int, keys: int, width: int, temperature: float, device: torch.device | str = "cpu"
) -> tuple[Tensor, Tensor]:
    """Sinusoids ``(P, width)`` of the offsets along one axis, float32, and their index."""
    offsets, index = axis_set(queries, keys, 1.0, device)
    # The public code's operations one by one: it rounds to float32 in between.
    bands = torch.arange(0, width, 2.0, device=device)
    frequencies = 1 / torch.pow(temperature, bands / width)
    with torch.autocast(offsets.device.type, enabled=False):
        angles = offsets[:, None] * frequencies
    return torch.cat((angles.sin(), angles.cos()), dim=1), index
