"""The learned tables of iRPE under their public names."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

Init = Literal["zero", "xavier"]


class LookupTable(nn.Module):
    """One table: ``lookup_table_weight`` (vectors) or ``lookup_table_bias`` (numbers).

    Args:
        shape: ``(1|h, d, K)`` or ``(1|h, K, d)`` for vectors, ``(1|h, K)`` for numbers.
        init: ``zero``, or ``xavier`` on the shape as it stands: trailing axes count as receptive
            field, so ``(1, 32, 81)`` starts uniform within 0.0474.
    """

    def __init__(self, shape: tuple[int, ...], init: Init) -> None:
        super().__init__()
        self.name = "lookup_table_weight" if len(shape) == 3 else "lookup_table_bias"
        table = torch.zeros(shape)
        if init == "xavier":
            nn.init.xavier_uniform_(table)
        self.register_parameter(self.name, nn.Parameter(table))

    def tables(self) -> tuple[Tensor, ...]:
        return (self.get_parameter(self.name),)


class CrossTables(nn.Module):
    """A row table and a column table of equal shape; what they give is added up."""

    def __init__(self, shape: tuple[int, ...], init: Init) -> None:
        super().__init__()
        self.rp_rows = LookupTable(shape, init)
        self.rp_cols = LookupTable(shape, init)

    def tables(self) -> tuple[Tensor, ...]:
        return self.rp_rows.tables() + self.rp_cols.tables()
