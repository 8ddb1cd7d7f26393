"""The suite ``encodings``: one attention call with each encoding against the same without."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor

from relpos_mm.encodings import Grid, PositionEncoding
from relpos_mm.encodings.grid import Size
from relpos_mm.encodings.irpe_buckets import BucketRule, gather_ids
from relpos_mm.engine.errors import UserError
from relpos_mm.models import attend
from relpos_mm.models.attention import Impl

from .agreement import largest_error, require_agreement
from .benchmark import Limit, Pair
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


SHAPES: dict[str, Shape] = {
    "detr": Shape(2, 8, (25, 38), 32, ratio=2.0),  # a batch of DETR at 800 x 1216
    "vit": Shape(8, 6, (14, 14), 64, prefix=1),  # DeiT-S at 224
    "window": Shape(128, 3, (7, 7), 32),  # Swin-T's first stage, two images at 224
}

# Ratios to attention without encoding that the project set itself, by (shape, encoding, step).
LIMITS: dict[tuple[str, str, str], Limit] = {
    ("detr", "irpe_k", "training"): Limit(1.35),
    ("detr", "irpe_k", "inference"): Limit(1.1),
    ("detr", "irpe_v", "training"): Limit(1.4, memory=1.1),
}
STEPS = ("inference", "training")


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
        torch.manual_seed(0)
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


def pairs(
    names: Iterable[str],
    shapes: Iterable[str],
    steps: Iterable[str] = STEPS,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Iterator[Pair]:
    """Yield each encoding against none; outputs and gradients equal eager float64 attention.

    Raises:
        UserError: An unknown shape, or a result that differs.
    """
    for shape_name in shapes:
        if shape_name not in SHAPES:
            raise UserError(f"no shape is called {shape_name!r}; known: {', '.join(SHAPES)}")
        shape = SHAPES[shape_name]
        none = Attention(shape, [], dtype=dtype, device=device)
        for name in names:
            encodings = encodings_of(shape, name)
            call = Attention(shape, encodings, dtype=dtype, device=device)
            for step in steps:
                exact = Attention(
                    shape, encodings, dtype=torch.float64, device=device, impl="eager"
                )
                # Tokens of the call's own precision, so that rounding them is no error of it.
                exact.qkv, exact.map = [t.double() for t in call.qkv], call.map.double()
                exact.grads = [t.double() for t in call.grads]
                error = largest_error(getattr(call, step)(), getattr(exact, step)())
                del exact  # a matrix of all pairs in float64
                yield Pair(
                    suite="encodings",
                    size=shape_name,
                    base="none",
                    name=name,
                    step=step,
                    run_base=partial(getattr(none, step)),
                    run=partial(getattr(call, step)),
                    error=require_agreement(f"{name} at {shape_name}, {step}", error, dtype),
                    limit=LIMITS.get((shape_name, name, step)),
                )


def new_grid_ms(device: torch.device | str = "cpu", grids: int = 7) -> float:
    """Median CPU time to make iRPE's bucket ids of a grid that was not seen before, in ms.

    All layers of a model share them.
    """
    rule = BucketRule("product", 2.0)
    times = []
    for i in range(grids):
        started = time.process_time()
        gather_ids(rule, (25, 38 - i), 0, torch.device(device))
        times.append((time.process_time() - started) * 1e3)
    return median(times)
