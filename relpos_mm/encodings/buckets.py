"""Pure index arithmetic: which table row an offset between two tokens reads."""

from __future__ import annotations

import torch
from torch import Tensor

from .grid import Size
from .made_once import made_once


def table_rows(window_size: Size) -> int:
    """Number of distinct offsets in a window: ``(2 Wh - 1)(2 Ww - 1)``."""
    return (2 * window_size[0] - 1) * (2 * window_size[1] - 1)


def axis_offsets(num_queries: int, num_keys: int, device: torch.device | str) -> Tensor:
    """Offsets ``(num_queries, num_keys)`` along one axis, query minus key in key units, int64.

    Raises:
        ValueError: Queries are pooled by a factor that is no whole number, so an offset is none.
    """
    if num_keys % num_queries:
        raise ValueError(
            f"{num_queries} queries over {num_keys} keys along an axis: a table of whole offsets "
            "needs as many keys as queries or a whole multiple of them"
        )
    queries = torch.arange(num_queries, device=device) * (num_keys // num_queries)
    return queries[:, None] - torch.arange(num_keys, device=device)[None, :]


def require_covered(query_size: Size, key_size: Size, window_size: Size) -> None:
    """Raise ``ValueError`` where a grid is larger than the window of a table."""
    for name, size in (("query", query_size), ("key", key_size)):
        if size[0] > window_size[0] or size[1] > window_size[1]:
            raise ValueError(
                f"the {name} grid {size[0]} x {size[1]} is larger than the window "
                f"{window_size[0]} x {window_size[1]} of the relative position bias table; "
                "build the encoding with a window_size that covers the grid"
            )


@made_once(maxsize=64)
def product_index(
    query_size: Size, key_size: Size, window_size: Size, device: torch.device | str = "cpu"
) -> Tensor:
    """Table row of every query/key pair: ``(dy + Wh - 1)(2 Ww - 1) + dx + Ww - 1``.

    This is the index of the public Swin code (paper section 3.2: offsets along each axis lie in
    ``[-M + 1, M - 1]``). A grid smaller than the window reads the central part of the table, so a
    row keeps its offset whatever the size of the map. Pooled queries stand where
    :meth:`Grid.coords` puts them.

    Args:
        query_size: Query grid ``(H, W)``, at most the window.
        key_size: Key grid ``(H, W)``, at most the window.
        window_size: Window ``(Wh, Ww)`` that the table is made for.
        device: Where the index is wanted; part of the cache key.

    Returns:
        ``(Nq, Nk)`` int64.

    Raises:
        ValueError: A grid is larger than the window, so an offset has no row.
    """
    require_covered(query_size, key_size, window_size)
    rows = axis_offsets(query_size[0], key_size[0], device) + window_size[0] - 1
    columns = axis_offsets(query_size[1], key_size[1], device) + window_size[1] - 1
    index = rows[:, None, :, None] * (2 * window_size[1] - 1) + columns[None, :, None, :]
    # (Hq, Wq, Hk, Wk) -> (Nq, Nk)
    return index.reshape(query_size[0] * query_size[1], key_size[0] * key_size[1])
