"""The sweep's comparison of every hook with a double loop over its scalar formula."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from relpos_mm.encodings import Grid, PositionEncoding
from relpos_mm.models import attend

from .case import CANVAS, CONTENT, HEAD_DIM, HEADS, Case, ContentFormula, random_map, random_qkv

HOOKS = ("embed", "rotate", "bias", "value", "value_attn")


def acts(encoding: PositionEncoding, hook: str) -> bool:
    """Whether the encoding does anything in ``hook`` with its setting."""
    if getattr(type(encoding), hook) is getattr(PositionEncoding, hook):
        return False
    if hook == "rotate":
        q, k, _ = random_qkv(Grid(CONTENT))
        return any(
            a is not b for a, b in zip(encoding.rotate(q, k, Grid(CONTENT)), (q, k), strict=True)
        )
    return encoding.needs_attn if hook == "value_attn" else True


def check_formula(case: Case) -> None:
    """Embed and bias equal a double loop over the scalar formula; no hook goes unproved."""
    encoding = case.build().double()
    proofs = {
        "embed": (case.embed, case.embed_content),
        "value": (case.value,),
        "rotate": (case.logit,),
        "bias": (case.bias, case.logit),
        "value_attn": (case.added_value,),
    }
    for hook in HOOKS:
        proved = any(proof is not None for proof in proofs.get(hook, ()))
        assert proved or not acts(encoding, hook), f"no formula proves {hook}"
    for grid in (Grid(CONTENT), Grid((3, 1)), Grid(CANVAS, valid=((4, 5), (7, 2)))):
        height, width = grid.q
        x = random_map(grid.q)
        if case.embed is not None:
            embedded = encoding.embed(x, grid)
            for image in range(2):
                one = Grid(grid.q, valid=None if grid.valid is None else (grid.valid[image],))
                for row in range(height):
                    for column in range(width):
                        expected = x[image, row, column] + case.embed(encoding, row, column, one)
                        torch.testing.assert_close(
                            embedded[image, row, column], expected.double(), atol=1e-5, rtol=0
                        )
        if case.embed_content is not None:
            added = encoding.embed(x, grid) - x
            _compare_content(case.embed_content, encoding, x, added, grid)
        if case.value is not None:
            v = x.flatten(1, 2).unflatten(-1, (HEADS, HEAD_DIM)).transpose(1, 2)
            added = encoding.value(v, grid).transpose(1, 2).reshape(x.shape)
            _compare_content(case.value, encoding, x, added, grid)
        if any((case.bias, case.logit, case.added_value)):
            q, k, v = random_qkv(grid)
            some = range(0, grid.num_queries, 1 + grid.num_queries // 20)
            expected = _attention_loop(case, encoding, q, k, v, grid, some)
            out = attend(q, k, v, [encoding], grid)[:, :, list(some)]
            torch.testing.assert_close(out, expected, atol=1e-6, rtol=1e-6)  # float32 coordinates


def _compare_content(
    formula: ContentFormula, encoding: PositionEncoding, x: Tensor, added: Tensor, grid: Grid
) -> None:
    for image in range(2):
        one = Grid(grid.q, valid=None if grid.valid is None else (grid.valid[image],))
        for row in range(grid.q[0]):
            for column in range(grid.q[1]):
                expected = formula(encoding, x[image], row, column, one)
                torch.testing.assert_close(added[image, row, column], expected)


@torch.no_grad()
def _attention_loop(
    case: Case,
    encoding: PositionEncoding,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    grid: Grid,
    queries: Sequence[int],
) -> Tensor:
    """Outputs ``(B, h, len(queries), d)`` of some queries, pair by pair."""
    places = [(row, column) for row in range(grid.q[0]) for column in range(grid.q[1])]
    out = torch.empty_like(q[:, :, : len(queries)])
    for head in range(HEADS):
        for row, i in enumerate(queries):
            pairs = [(encoding, head, places[i], key) for key in places]
            added = [case.added_value(*pair) for pair in pairs] if case.added_value else []
            bias = [float(case.bias(*pair)) for pair in pairs] if case.bias else [0.0]
            for image in range(q.shape[0]):
                query, keys = q[image, head, i], k[image, head]
                if case.logit is None:
                    logits = keys @ query / HEAD_DIM**0.5 + torch.tensor(bias, dtype=q.dtype)
                else:
                    both = zip(pairs, keys, strict=True)
                    logits = torch.stack([case.logit(*pair, query, key) for pair, key in both])
                values = v[image, head] + (torch.stack(added) if case.added_value else 0)
                out[image, head, row] = logits.softmax(0) @ values
    return out
