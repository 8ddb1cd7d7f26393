"""One attention call on fixed tokens with encodings: what the suite ``calls`` measures."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from relpos_mm.encodings import Grid, PositionEncoding
from relpos_mm.encodings.grid import Size
from relpos_mm.models import attend
from relpos_mm.models.forms import Impl

from .catalogue import build, position_of


@dataclass(frozen=True)
class Shape:
    """Tokens of one attention call.

    Attributes:
        batch: Images, or windows of all images.
        heads: Attention heads.
        grid: Tokens ``(H, W)``.
        width: Channels of a head.
        prefix: Class tokens.
        ratio: iRPE's ratio at this place.
    """

    batch: int
    heads: int
    grid: Size
    width: int
    prefix: int = 0
    ratio: float = 1.9

    @property
    def tokens(self) -> int:
        """Tokens that attend to each other."""
        return self.prefix + self.grid[0] * self.grid[1]


class Attention:
    """One call of attention on fixed random tokens, with a list of encodings."""

    def __init__(
        self,
        shape: Shape,
        encodings: Sequence[PositionEncoding],
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        impl: Impl = "auto",
    ) -> None:
        self.encodings = [copy.deepcopy(e).to(device=device, dtype=dtype) for e in encodings]
        self.grid = Grid(shape.grid, prefix=shape.prefix)
        self.impl = impl
        generator = torch.Generator().manual_seed(0)

        def tokens(*size: int) -> Tensor:
            return torch.randn(*size, generator=generator).to(device=device, dtype=dtype)

        size = (shape.batch, shape.heads, self.grid.num_queries, shape.width)
        self.qkv = [tokens(*size) for _ in range(3)]
        self.map = tokens(shape.batch, *shape.grid, shape.heads * shape.width)
        self.grads = [tokens(*size), tokens(*self.map.shape)]

    def forward(self, qkv: Sequence[Tensor], x: Tensor) -> list[Tensor]:
        """Attention's output, and the map that ``embed`` hooks act on if there are any."""
        located = x
        for encoding in self.encodings:
            located = encoding.embed(located, self.grid)
        q, k, v = qkv
        out = attend(q, k, v, self.encodings, self.grid, impl=self.impl)
        return [out] if located is x else [out, located]

    def inference(self) -> list[Tensor]:
        """Outputs, without autograd."""
        with torch.no_grad():
            return self.forward(self.qkv, self.map)

    def training(self) -> list[Tensor]:
        """Outputs and all gradients: of q, k, v, of the map, of the encodings' parameters."""
        leaves = [tensor.detach().requires_grad_() for tensor in (*self.qkv, self.map)]
        parameters = [p for e in self.encodings for p in e.parameters()]
        outs = self.forward(leaves[:3], leaves[3])
        grads = torch.autograd.grad(
            outs, [*leaves, *parameters], self.grads[: len(outs)], allow_unused=True
        )
        return [*(out.detach() for out in outs), *(grad for grad in grads if grad is not None)]


def encodings_of(shape: Shape, name: str) -> list[PositionEncoding]:
    """The encodings of a catalogue name at a shape, with parameters that matter."""
    position: list[dict[str, Any]] = []
    for cfg in position_of(name):
        extra: dict[str, Any] = {}
        if cfg["type"] == "ContextualRpe":
            extra = {"ratio": shape.ratio, "skip": shape.prefix}
        position.append({**cfg, **extra})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)  # with 0 all units of a four wide `dpb` are off
        encodings = build(
            position,
            grid=shape.grid,
            embed_dims=shape.heads * shape.width,
            num_heads=shape.heads,
        )
        for encoding in encodings:
            for parameter in encoding.parameters():
                torch.nn.init.normal_(parameter, std=0.3)
    return encodings
