"""What was tried to make the Swin trunk faster, part by part, each against what it replaces.

``python -m relpos_mm.analysis.trunk_parts`` measures again and renews docs/performance_tried.json
and the table in docs/performance_tried.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from mmcv.cnn.bricks import DropPath
from torch import Tensor

from relpos_mm.engine.errors import UserError
from relpos_mm.models.eager import biased_logits, content_logits
from relpos_mm.models.pieces import in_pieces
from relpos_mm.models.swin_layers import add_branch
from relpos_mm.models.window_moves import from_windows, to_windows
from relpos_mm.models.windows import padded_size, window_plan

from .agreement import largest_error
from .benchmark import clock
from .measured_page import MeasuredPage
from .tables import markdown_table

# The second stage of Swin-T on a picture of 512 x 683.
SIZE, CHANNELS, HEADS, WINDOW, SHIFT = (64, 86), 192, 6, (7, 7), (3, 3)
WIDTH, LENGTH = CHANNELS // HEADS, WINDOW[0] * WINDOW[1]
PLAN = window_plan(SIZE, WINDOW, SHIFT, False, torch.device("cpu"))

Function = Callable[..., Tensor]
Run = Callable[[], list[Tensor]]


@dataclass(frozen=True)
class Trial:
    """A way that was tried instead of another one.

    Attributes:
        part: Part of a block.
        base: The way before.
        tried: The way that was tried.
        kept: Whether the trunk uses it.
        functions: Both ways, of the same inputs.
        shapes: Shapes of the inputs, random and with gradients.
        steps: ``inference`` and ``training`` where it can be used there.
        dtypes: Precisions where it can be used.
    """

    part: str
    base: str
    tried: str
    kept: bool
    functions: tuple[Function, Function]
    shapes: Sequence[tuple[int, ...]]
    steps: Sequence[str] = ("inference", "training")
    dtypes: Sequence[torch.dtype] = (torch.float32,)


def gather_tokens(tokens: Tensor) -> Tensor:
    """Gather whole tokens behind a copy that appends the padding, then split the heads."""
    moved = F.pad(tokens, (0, 0, 0, 1)).index_select(1, PLAN.index.flatten())
    return _split(moved.view(1, PLAN.num_windows, LENGTH, -1))


def pad_roll_permute(tokens: Tensor) -> Tensor:
    """The published order: pad, roll, cut by views."""
    height, width = padded_size(SIZE, WINDOW)
    x = tokens.view(1, *SIZE, -1)
    x = F.pad(x, (0, 0, 0, width - SIZE[1], 0, height - SIZE[0]))
    x = x.roll((-SHIFT[0], -SHIFT[1]), dims=(1, 2))
    x = x.view(1, height // WINDOW[0], WINDOW[0], width // WINDOW[1], WINDOW[1], -1)
    return _split(x.transpose(2, 3).flatten(3, 4).flatten(1, 2))


def gather_heads(tokens: Tensor) -> Tensor:
    """One copy straight into heads."""
    return to_windows(F.pad(tokens, (0, 0, 0, 1)), PLAN, 3, HEADS)


def _split(windows: Tensor) -> Tensor:
    """``(1, windows, N, 3 C) -> (3, windows, h, N, d)``, contiguous as products need it."""
    parts = windows.reshape(-1, LENGTH, 3, HEADS, WIDTH)
    return parts.permute(2, 0, 3, 1, 4).contiguous()


def glue_tokens(windows: Tensor) -> Tensor:
    """Transpose the heads back, then gather whole tokens."""
    return windows.transpose(1, 2).reshape(1, -1, CHANNELS).index_select(1, PLAN.slots)


def glue_heads(windows: Tensor) -> Tensor:
    """One copy straight out of heads."""
    return from_windows(windows, PLAN)


def product_and_sum(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """Multiply, then scale and add."""
    return content_logits(q, k, WIDTH**-0.5, bias).softmax(-1) @ v


def one_product(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """``baddbmm``."""
    return biased_logits(q, k, bias, WIDTH**-0.5).softmax(-1) @ v


def fused(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """The CPU kernel of ``scaled_dot_product_attention``."""
    mask = bias.to(q.dtype).expand(len(q), -1, -1, -1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def masked_each_call(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """Put the mask into the bias in every call."""
    return one_product(q, k, v, torch.where(PLAN.mask, bias, torch.finfo(q.dtype).min))  # type: ignore


def masked_once(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """Keep the masked bias."""
    key = bias.data_ptr()
    if key not in _KEPT:
        _KEPT.clear()
        _KEPT[key] = torch.where(PLAN.mask, bias, torch.finfo(q.dtype).min)  # type: ignore
    return one_product(q, k, v, _KEPT[key])


_KEPT: dict[int, Tensor] = {}


def drop_then_add(x: Tensor, branch: Tensor) -> Tensor:
    """Divide, multiply, add."""
    torch.manual_seed(0)
    return x + _DROP(branch)


def add_in_one(x: Tensor, branch: Tensor) -> Tensor:
    """``addcmul``."""
    torch.manual_seed(0)
    return add_branch(x, branch, _DROP)


_DROP = DropPath(0.1).train()


def bias_as_gathered(q: Tensor, k: Tensor, v: Tensor, rows: Tensor) -> Tensor:
    """A bias whose heads lie innermost, as in the table, for all windows with their masks."""
    bias = rows.view(LENGTH, LENGTH, HEADS).permute(2, 0, 1)[None]
    return product_and_sum(q, k, v, torch.where(PLAN.mask, bias, torch.finfo(q.dtype).min))  # type: ignore


def bias_by_head(q: Tensor, k: Tensor, v: Tensor, rows: Tensor) -> Tensor:
    """The same after one copy that puts each head's numbers side by side."""
    bias = rows.view(LENGTH, LENGTH, HEADS).permute(2, 0, 1)[None].contiguous()
    return product_and_sum(q, k, v, torch.where(PLAN.mask, bias, torch.finfo(q.dtype).min))  # type: ignore


def mlp(x: Tensor, inner: Tensor, outer: Tensor) -> Tensor:
    """The whole map at once."""
    return F.linear(F.gelu(F.linear(x, inner)), outer)


def mlp_in_pieces(x: Tensor, inner: Tensor, outer: Tensor) -> Tensor:
    """1,024 tokens at a time, whose hidden layer stays in the cache."""
    return in_pieces(lambda tokens: mlp(tokens, inner, outer), x)


_MAP = (SIZE[0] * SIZE[1], CHANNELS)
_QKV = (1, SIZE[0] * SIZE[1], 3 * CHANNELS)
_HEAD = (PLAN.num_windows, HEADS, LENGTH, WIDTH)
_ATTENTION = (_HEAD, _HEAD, _HEAD, (1, HEADS, LENGTH, LENGTH))
_BOTH = (torch.float32, torch.bfloat16)
TOKENS = "one gather of tokens"
PIECES = "pieces of 1,024 tokens"


def _hidden(channels: int) -> tuple[tuple[int, int], tuple[int, int]]:
    return (4 * channels, channels), (channels, 4 * channels)


TRIALS = (
    Trial("cut", "pad, roll, permute", TOKENS, False, (pad_roll_permute, gather_tokens), [_QKV],
          dtypes=_BOTH),
    Trial("cut", TOKENS, "one gather into heads", True, (gather_tokens, gather_heads), [_QKV],
          dtypes=_BOTH),
    Trial("glue", TOKENS, "one gather out of heads", True, (glue_tokens, glue_heads), [_HEAD],
          dtypes=_BOTH),
    Trial("attention", "product and sum", "baddbmm", True, (product_and_sum, one_product),
          _ATTENTION, steps=["inference"]),
    Trial("attention", "product and sum", "baddbmm", False, (product_and_sum, one_product),
          _ATTENTION, steps=["training"]),
    Trial("attention", "baddbmm", "fused kernel", True, (one_product, fused), _ATTENTION,
          steps=["inference"]),
    Trial("attention", "product and sum", "fused kernel", False, (product_and_sum, fused),
          _ATTENTION, steps=["training"]),
    Trial("masked attention", "mask in every call", "masked bias kept", False,
          (masked_each_call, masked_once), _ATTENTION, steps=["inference"]),
    Trial("residual", "div, mul, add", "addcmul", True, (drop_then_add, add_in_one), [_MAP, _MAP],
          steps=["training"]),
    Trial("bias", "as gathered", "contiguous", True, (bias_as_gathered, bias_by_head),
          [*_ATTENTION[:3], (LENGTH**2, HEADS)]),
    Trial("MLP", "whole map", PIECES, True, (mlp, mlp_in_pieces), [_MAP, *_hidden(CHANNELS)]),
    Trial("MLP of the first stage", "whole map", PIECES, True, (mlp, mlp_in_pieces),
          [(4 * _MAP[0], CHANNELS // 2), *_hidden(CHANNELS // 2)], dtypes=_BOTH),
)  # fmt: skip


def runs(trial: Trial, dtype: torch.dtype, step: str) -> tuple[Run, Run]:
    """Both ways of a trial, of the same inputs; each returns its output and gradients."""
    generator = torch.Generator().manual_seed(0)
    inputs = [
        torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in trial.shapes
    ]
    before, tried = (_run(function, inputs, step) for function in trial.functions)
    return before, tried


def measured(trial: Trial, dtype: torch.dtype, step: str, rounds: int) -> dict[str, Any]:
    """Time both ways in turn, after a look at their results.

    Raises:
        UserError: They differ by more than rounding explains.
    """
    before, tried = runs(trial, dtype, step)
    error = largest_error(tried(), before())
    if not error <= (1e-4 if dtype == torch.float32 else 0.1):  # also for NaN
        raise UserError(f"{trial.part}: {trial.tried} differs from {trial.base} by {error:.1e}")
    cpu = torch.device("cpu")
    times = [(clock(before, cpu)[0], clock(tried, cpu)[0]) for _ in range(rounds)]
    return {
        **{key: getattr(trial, key) for key in ("part", "base", "tried", "kept")},
        "step": step,
        "dtype": str(dtype).removeprefix("torch."),
        "base_ms": median(first for first, _ in times),
        "ms": median(second for _, second in times),
        "ratio": median(second / first for first, second in times),
    }


def _run(function: Function, inputs: list[Tensor], step: str) -> Run:
    # The fused kernel refuses a mask that could take a gradient, even where none is asked for.
    fixed = [tensor.detach() for tensor in inputs]

    def inference() -> list[Tensor]:
        with torch.no_grad():
            return [function(*fixed)]

    def training() -> list[Tensor]:
        out = function(*inputs)
        return [out.detach(), *torch.autograd.grad(out, inputs, out.detach().sign())]

    return inference if step == "inference" else training


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows of the record as a table in Markdown."""
    header = ["part", "before", "tried", "step", "precision", "ms before", "ms", "speed-up", "kept"]
    cells = [
        [
            *(row[key] for key in ("part", "base", "tried", "step", "dtype")),
            f"{row['base_ms']:.1f}",
            f"{row['ms']:.1f}",
            f"{1 / row['ratio']:.2f}",
            "yes" if row["kept"] else "no",
        ]
        for row in rows
    ]
    return markdown_table(header, cells)


PAGE = MeasuredPage("performance_tried", "tried", table)


def main(rounds: int = 15) -> None:
    """Measure every trial and renew the record and the page."""
    PAGE.measure(
        measured(trial, dtype, step, rounds)
        for trial in TRIALS
        for dtype in trial.dtypes
        for step in trial.steps
    )


if __name__ == "__main__":
    main()
