"""iRPE by the index arithmetic of its authors' Python code, to compare time and memory with."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from relpos_mm.encodings import ContextualRpe
from relpos_mm.encodings.irpe_buckets import gather_ids

from .attention_call import Attention


class PublishedIrpe(Attention):
    """Contextual iRPE, product mapping, one table for all heads, on keys or on values.

    On keys one flat advanced index over ``N K`` numbers of each head; on values one table row per
    pair, which is a tensor of ``N x N x d``. The authors' code does the same.
    """

    def forward(self, qkv: Sequence[Tensor], x: Tensor) -> list[Tensor]:
        q, k, v = qkv
        (encoding,) = self.encodings
        if not isinstance(encoding, ContextualRpe):
            raise TypeError(f"{type(encoding).__name__} is not iRPE")
        (ids,) = gather_ids(encoding.rule, self.grid.q, 0, q.device)
        ((table,),) = (module.tables() for module in encoding.children())  # type: ignore[operator]
        tokens, width = q.shape[2:]
        q = q * width**-0.5
        logits = q @ k.transpose(-2, -1)
        if encoding.sides == "k":
            lookup = q @ table[0]
            starts = torch.arange(tokens, device=q.device)[:, None] * lookup.shape[-1]
            index = (starts + ids).flatten()
            logits = logits + lookup.flatten(2)[:, :, index].view_as(logits)
        attn = logits.softmax(dim=-1)
        out = attn @ v
        if encoding.sides == "v":
            rows = table[0][ids.flatten()]
            rows = rows.view(tokens, tokens, width)  # (Nq, Nk, d)
            # (h, Nq, B, Nk) @ (1, Nq, Nk, d)
            out = out + (attn.permute(1, 2, 0, 3) @ rows[None]).permute(2, 0, 1, 3)
        return [out]
