"""Image relative position encoding (iRPE): one learned vector or number per bucket of offsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from relpos_mm.registry import POSITIONS

from .arguments import head_width, require_counts, require_positive
from .base import PositionEncoding, Resized, other_shapes
from .contextual import project
from .grid import Grid, Size
from .irpe_buckets import BucketRule, Index, Semantics, gather_ids
from .lookup import Lookup, ValueLookup
from .resize import ResizeMode
from .rpe_tables import CrossTables, Init, LookupTable

_MAPPINGS = {
    "euc": "euclidean",
    "euclidean": "euclidean",
    "quant": "quantization",
    "quantization": "quantization",
    "cross": "cross",
    "product": "product",
}
_MODES = {"bias": "bias", "contextual": "contextual", "ctx": "contextual"}
_MOST_BUCKETS = 2**20


@POSITIONS.register_module()
class ContextualRpe(PositionEncoding):
    """iRPE on keys, queries or values: a table row per bucket, met by q, k or the attention.

    Source: "Rethinking and Improving Relative Position Encoding for Vision Transformer", section
    3.2 and equations 13 to 28, with the semantics of the authors' code. With ``s = scale``, offsets
    query minus key, rows first, and ``b(i, j)`` the bucket of a pair
    (:class:`~relpos_mm.encodings.irpe_buckets.BucketRule`)::

        on k:  logit(i, j) += s q_i . T_k[b(i, j)]          bias mode: += T_k[b(i, j)]
        on q:  logit(i, j) += s k_j . T_q[b(j, i)]          bias mode: += T_q[b(j, i)]
        on v:  out_i       += sum_j attn(i, j) T_v[b(i, j)]  contextual mode only

    Scale rule: contextual terms are inside ``1/sqrt(d)``, the bias mode's are added after scaling.
    ``semantics="paper"`` reads ``b(i, j)`` on the query side too (equation 16; the code's reversed
    pair is the same table mirrored) and indexes distances as the paper writes it. Weight decay: the
    paper's supplement exempts the tables, the released code decays them. Initial values: the
    paper's supplement says zero, and DeiT's code does so; DETR's code overwrites them by Xavier.

    Tables keep the public names and layout: ``rpe_{q,k}.lookup_table_weight (1|h, d, K)``,
    ``rpe_v.lookup_table_weight (1|h, K, d)``, ``rpe_{q,k}.lookup_table_bias (1|h, K)``; cross has
    two of each, ``rpe_k.rp_rows`` and ``rpe_k.rp_cols``, whose results add up. No table depends on
    the size of the map. No ``N x N x d`` tensor is made: tokens meet the K rows first, pairs are
    gathered after.

    Args:
        embed_dims: Channels C.
        num_heads: Heads h.
        mapping: ``product``, ``cross``, ``euclidean`` (``euc``) or ``quantization`` (``quant``).
        mode: ``contextual`` (``ctx``) or ``bias``.
        rpe_on: Sides that have a table: letters of ``qkv``.
        shared_head: One table for all heads, or one per head.
        ratio: Alpha; beta is twice and gamma eight times as much. 1.9 makes 7, 2.0 makes 9
            indices per axis.
        skip: Number of tokens before the grid that the model has. Above 0 every pair with such a
            token reads one more bucket, the same for any number of them; 0 leaves them without
            encoding and the table without that row.
        index: ``piecewise`` or ``clip``.
        semantics: ``code`` or ``paper``.
        init: ``zero``, or ``xavier`` as the released DETR in effect has it.
        weight_decay: Let tables decay, as the released code does.

    Raises:
        ValueError: An unknown option, contradicting options, or a grid that does not fit them.
    """

    slug: ClassVar[str] = "irpe"
    free: ClassVar[frozenset[str]] = frozenset({"skip", "init", "weight_decay"})

    def __init__(
        self,
        *,
        embed_dims: int,
        num_heads: int,
        mapping: str = "product",
        mode: str = "contextual",
        rpe_on: str = "k",
        shared_head: bool = True,
        ratio: float = 1.9,
        skip: int = 0,
        index: Index = "piecewise",
        semantics: Semantics = "code",
        init: Init = "zero",
        weight_decay: bool = False,
    ) -> None:
        super().__init__()
        self.mapping = _choice("mapping", str(mapping).lower(), _MAPPINGS)
        self.mode = _choice("mode", str(mode).lower(), _MODES)
        _choice("index", index, ("piecewise", "clip"))
        _choice("semantics", semantics, ("code", "paper"))
        _choice("init", init, ("zero", "xavier"))
        self.sides = _sides(rpe_on)
        if self.mode == "bias" and "v" in self.sides:
            raise ValueError(
                f"ContextualRpe: rpe_on={rpe_on!r} with mode='bias': a number per bucket adds to "
                "logits, values need mode='contextual' or rpe_on without 'v'"
            )
        require_positive("ContextualRpe", ratio=ratio)
        if ratio < 0.5:
            raise ValueError(
                f"ContextualRpe: ratio={ratio} leaves a single bucket; use 0.5 or more "
                "(published: 1.9, 2, 20, 33)"
            )
        head_dim = head_width("ContextualRpe", embed_dims, num_heads)
        require_counts("ContextualRpe", least=0, skip=skip)
        self.rule = BucketRule(self.mapping, float(ratio), index, semantics)  # type: ignore[arg-type]
        # The first test keeps the count itself from overflowing.
        if ratio > _MOST_BUCKETS or self.rule.num_buckets > _MOST_BUCKETS:
            raise ValueError(
                f"ContextualRpe: ratio={ratio!r} with mapping={self.mapping!r} makes more than "
                f"{_MOST_BUCKETS:,} buckets, more than a map of 512 x 512 tokens has offsets; use "
                "a smaller ratio (published: 1.9, 2, 20, 33)"
            )
        self.skip = skip
        self.sees_prefix = skip > 0
        self.needs_attn = "v" in self.sides
        self.weight_decay = weight_decay
        heads = 1 if shared_head else num_heads
        make = CrossTables if self.mapping == "cross" else LookupTable
        for side in self.sides:
            shape: tuple[int, ...] = (heads, self.num_buckets)
            if self.mode == "contextual":
                rows = (head_dim, self.num_buckets)
                shape = (heads, *(reversed(rows) if side == "v" else rows))
            self.add_module(f"rpe_{side}", make(shape, init))

    @classmethod
    def slug_of(cls, cfg: Mapping[str, Any]) -> str:
        sides = _sides(cfg.get("rpe_on", "k"))
        if _MODES.get(str(cfg.get("mode", "contextual")).lower()) == "bias":
            return "irpe_bias" if sides == "k" else f"irpe_bias_{sides}"
        return f"irpe_{sides}"

    @classmethod
    def options_of(cls, cfg: Mapping[str, Any]) -> dict[str, Any]:
        options = super().options_of(cfg)  # with one name for each way of spelling a value
        for name, known in (("mapping", _MAPPINGS), ("mode", _MODES)):
            options[name] = known.get(str(options[name]).lower(), options[name])
        return options | {"rpe_on": _sides(options["rpe_on"])}

    @property
    def num_buckets(self) -> int:
        """Rows K of a table, the prefix tokens' bucket included; cross has two tables of K."""
        return self.rule.num_buckets + self.sees_prefix

    def num_occurring(self, grid: Grid | Size) -> int:
        """How many rows some pair of ``grid`` reads, the prefix tokens' bucket included.

        Published names count these on 14 x 14 tokens with a class token (``product_50``), tables
        may be far longer (82 rows for ``euc_20``). Rows that no pair reads keep their initial
        value and come to life on a larger map. Cross counts both tables (28 + 28 for
        ``cross_56``).
        """
        size = grid.q if isinstance(grid, Grid) else grid
        tables = self.rule.offset_buckets(size)
        return sum(len(torch.unique(table)) + self.sees_prefix for table in tables)

    def lookups(self, q: Tensor, k: Tensor, grid: Grid, scale: float) -> list[Lookup]:
        if self.mode == "bias":
            return []
        terms = []
        for side, tokens in (("k", q), ("q", k)):
            if side in self.sides:
                ids = self._ids(grid, side, q.device)
                for table, index in zip(self._tables(side), ids, strict=True):
                    values = project(tokens * scale, _unshared(table).transpose(-2, -1))
                    terms.append(Lookup(values, index, by_key=side == "q"))
        return terms

    def bias(self, q: Tensor, k: Tensor, grid: Grid, scale: float) -> Tensor | None:
        terms = [lookup.dense() for lookup in self.lookups(q, k, grid, scale)]
        if self.mode == "bias":
            for side in self.sides:
                ids = self._ids(grid, side, q.device)
                for table, index in zip(self._tables(side), ids, strict=True):
                    # (1|h, K) -> (1, 1|h, N, N)
                    read = table.index_select(1, index.flatten()).view(1, -1, *index.shape)
                    terms.append(read.transpose(-2, -1) if side == "q" else read)
        return sum(terms[1:], start=terms[0]) if terms else None

    def value_lookups(self, grid: Grid) -> list[ValueLookup]:
        if "v" not in self.sides or (grid.prefix and not self.sees_prefix):
            return []
        tables = self._tables("v")
        ids = self._ids(grid, "v", tables[0].device)
        return [ValueLookup(table, index) for table, index in zip(tables, ids, strict=True)]

    def value_attn(self, attn: Tensor, v: Tensor, grid: Grid) -> Tensor | None:
        hidden = 0 if self.sees_prefix else grid.prefix
        terms = [
            lookup.read(attn[:, :, hidden:, hidden:])
            for lookup in self.value_lookups(replace(grid, prefix=grid.prefix - hidden))
        ]
        if not terms:
            return None
        return F.pad(sum(terms[1:], start=terms[0]), (0, 0, hidden, 0))

    def _tables(self, side: str) -> tuple[Tensor, ...]:
        return self.get_submodule(f"rpe_{side}").tables()  # type: ignore[operator]

    def _ids(self, grid: Grid, side: str, device: torch.device) -> tuple[Tensor, ...]:
        """Bucket ids of the grid as the side reads them, one array per table."""
        if not isinstance(grid, Grid):
            raise ValueError(
                "ContextualRpe: no grid was given; the host must pass Grid((H, W)), a square is "
                "never guessed from the number of tokens"
            )
        if grid.q != grid.k:
            raise ValueError(
                f"ContextualRpe: query grid {grid.q} and key grid {grid.k} differ; buckets exist "
                "for self-attention on one grid, leave this encoding out of cross-attention"
            )
        if self.skip and not grid.prefix:
            raise ValueError(
                f"ContextualRpe: built with skip={self.skip} (a bucket for prefix tokens), but the "
                "grid has none; build it with skip=0"
            )
        prefix = grid.prefix if self.sees_prefix else 0
        ids = gather_ids(self.rule, grid.q, prefix, device)
        if side == "q" and self.rule.semantics == "paper":
            return tuple(index.t().contiguous() for index in ids)
        return ids

    def no_decay(self) -> tuple[str, ...]:
        return () if self.weight_decay else super().no_decay()

    def transfer(
        self,
        state: dict[str, Tensor],
        prefix: str,
        *,
        mode: ResizeMode = "scale",
        source: dict[str, Size] | None = None,
    ) -> list[Resized]:
        """Tables fit every map size; only the prefix tokens' bucket can be too many or missing."""
        records = []
        for name, table, own in other_shapes(self, state, prefix):
            key = prefix + name
            axis = 1 if name.startswith("rpe_v") else own.ndim - 1
            state[key] = self._with_prefix_bucket(key, table, own, axis)
            how = "prefix tokens' bucket " + ("starts at zero" if self.skip else "dropped")
            records.append(Resized(key, tuple(table.shape), tuple(own.shape), how))
        return records

    def _with_prefix_bucket(self, key: str, table: Tensor, own: Tensor, axis: int) -> Tensor:
        """Add or drop the last bucket of a table that differs in nothing else."""
        missing = 1 if self.sees_prefix else -1
        wanted = list(own.shape)
        wanted[axis] -= missing
        if list(table.shape) != wanted:
            raise ValueError(
                f"{key}: {tuple(table.shape)} in the checkpoint does not fit {tuple(own.shape)}; "
                "set shared_head (first number), ratio and mapping (buckets, "
                f"{self.num_buckets} here) to the checkpoint's"
            )
        if missing < 0:
            return table.narrow(axis, 0, own.shape[axis]).clone()
        edge = torch.zeros_like(table.narrow(axis, 0, 1))
        return torch.cat((table, edge), dim=axis)

    def extra_repr(self) -> str:
        return (
            f"{self.mapping}, {self.mode}, rpe_on={self.sides!r}, ratio={self.rule.ratio}, "
            f"buckets={self.num_buckets}, skip={self.skip}"
        )


def _unshared(table: Tensor) -> Tensor:
    """A table without its head axis where the heads share it: then all tokens meet it at once."""
    return table[0] if len(table) == 1 else table


def _choice(name: str, value: str, known: Any) -> str:
    if value not in known:
        raise ValueError(f"ContextualRpe: {name}={value!r} is none of {', '.join(known)}")
    return known[value] if isinstance(known, dict) else value


def _sides(rpe_on: str) -> str:
    """Letters of ``rpe_on`` in the order q, k, v."""
    if not rpe_on or set(rpe_on) - set("qkv") or len(set(rpe_on)) < len(rpe_on):
        raise ValueError(
            f"ContextualRpe: rpe_on={rpe_on!r} must name one or more of the sides q, k and v once "
            "each, such as 'k' or 'qkv'"
        )
    return "".join(side for side in "qkv" if side in rpe_on)
