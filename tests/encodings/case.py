"""A case of the sweep: one encoding with one setting and its formula in scalar code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from relpos_mm.encodings import Grid, PositionEncoding
from relpos_mm.models import attend

HEADS, HEAD_DIM = 2, 4
CHANNELS = HEADS * HEAD_DIM
CONTENT = (4, 5)  # a small picture in tokens
CANVAS = (7, 8)  # the larger map that its batch mates force on it

# Scalar forms of a formula. Embed: (encoding, row, column, grid) -> vector (C,) to add.
# Bias: (encoding, head, query place, key place) -> number to add to the scaled logit.
# Logit: (encoding, head, query place, key place, q, k) -> the whole logit, content included.
# Added value: (encoding, head, query place, key place) -> vector (d,) to add to the value.
EmbedFormula = Callable[[Any, int, int, Grid], Tensor]
BiasFormula = Callable[[Any, int, tuple[int, int], tuple[int, int]], Tensor]
# Content: (encoding, map (H, W, C), row, column, grid) -> vector (C,) to add, read off the map.
ContentFormula = Callable[[Any, Tensor, int, int, Grid], Tensor]
LogitFormula = Callable[[Any, int, tuple[int, int], tuple[int, int], Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Case:
    """One encoding with one setting.

    Attributes:
        cls: The class.
        settings: Constructor arguments; windows and tables must cover ``CANVAS``.
        embed: Scalar form of the ``embed`` hook, if it does not look at the content.
        embed_content: Scalar form of the ``embed`` hook, if it does.
        value: Scalar form of the ``value`` hook, if the class has one.
        bias: Scalar form of the ``bias`` hook, if it does not look at the content.
        logit: Scalar form of ``rotate``, and of a ``bias`` that looks at the content.
        added_value: Scalar form of the ``value_attn`` hook, if the class has one.
        other_size: Arguments that change for another size of the host; empty when nothing does.
        covering: A map that reads every number of the parameters.
        invisible: Parameters that add the same number to all logits of a query, which softmax
            ignores.
        coarse: Factor on the tolerance in half precision, for large logits that it rounds.
        relu: Whether a ReLU may hide single numbers of a parameter from every offset.
    """

    cls: type[PositionEncoding]
    settings: Mapping[str, Any]
    embed: EmbedFormula | None = None
    embed_content: ContentFormula | None = None
    value: ContentFormula | None = None
    bias: BiasFormula | None = None
    logit: LogitFormula | None = None
    added_value: BiasFormula | None = None
    other_size: Mapping[str, Any] = field(default_factory=dict)
    covering: tuple[int, int] = CANVAS
    invisible: frozenset[str] = frozenset()
    coarse: int = 1
    relu: bool = False

    def build(self, **changes: Any) -> PositionEncoding:
        """Return the encoding with large parameters, so that a wrong one shows."""
        torch.manual_seed(0)
        encoding = self.cls(**{**self.settings, **changes})
        for parameter in encoding.parameters():
            torch.nn.init.normal_(parameter)
        return encoding


def layer(
    encoding: PositionEncoding,
    x: Tensor,
    grid: Grid,
    *,
    key_padding_mask: Tensor | None = None,
    impl: str = "eager",
) -> Tensor:
    """One attention layer with fixed random projections on a map ``(B, H, W, C)``."""
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(3, CHANNELS, CHANNELS, generator=generator).to(x.dtype) / CHANNELS**0.5
    located = encoding.embed(x, grid)
    sources = (located, located, x if encoding.site == "qk_input" else located)
    q, k, v = (
        (source.flatten(1, 2) @ matrix).unflatten(-1, (HEADS, HEAD_DIM)).transpose(1, 2)
        for source, matrix in zip(sources, weight, strict=True)
    )
    out = attend(q, k, v, [encoding], grid, key_padding_mask=key_padding_mask, impl=impl)
    return out.transpose(1, 2).reshape(x.shape)


def random_map(size: tuple[int, int], batch: int = 2, seed: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, *size, CHANNELS, generator=generator, dtype=torch.float64)


def random_qkv(grid: Grid, batch: int = 2, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    sizes = (grid.num_queries, grid.num_keys, grid.num_keys)
    return [
        torch.randn(batch, HEADS, n, HEAD_DIM, generator=generator, dtype=torch.float64).to(dtype)
        for n in sizes
    ]


def on_canvas(content: Tensor, at: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Content placed in garbage; map ``(B, H, W, C)`` and key mask ``(B, N)``, True = hidden."""
    height, width = content.shape[1:3]
    canvas = 3 * random_map(CANVAS, content.shape[0], seed=4)
    hidden = torch.ones(content.shape[0], *CANVAS, dtype=torch.bool)
    rows, columns = slice(at[0], at[0] + height), slice(at[1], at[1] + width)
    canvas[:, rows, columns] = content
    hidden[:, rows, columns] = False
    return canvas, hidden.flatten(1)


def change(a: Tensor, b: Tensor) -> float:
    """Relative root-mean-square difference."""
    return ((a - b).square().mean().sqrt() / b.square().mean().sqrt()).item()
