"""iRPE's buckets: the authors' ids, how many occur, and where paper and code differ."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from relpos_mm.encodings import ContextualRpe, Grid
from relpos_mm.encodings.irpe_buckets import BucketRule, bucket_ids

from .reference import FILES, read

FOLDER = FILES / "irpe"
SMALL = {"embed_dims": 16, "num_heads": 2}


def test_bucket_ids_equal_the_authors() -> None:
    check_ids(FOLDER / "bucket_ids.npz")


def test_every_file_of_ids(golden_dir: Path) -> None:
    for name in ("bucket_ids", "bucket_ids_detr_25x38"):
        check_ids(golden_dir / "irpe" / f"{name}.npz")


def check_ids(path: Path) -> None:
    data = read(path)
    tables = {"cross_rows": ("cross", 0), "cross_cols": ("cross", 1), "quant": ("quantization", 0)}
    for name, expected in data.items():
        if name.endswith("num_buckets"):
            continue
        mapping, ratio, size, skip = name.split("__")
        mapping, table = tables.get(mapping, (mapping, 0))
        height, width = map(int, size.split("x"))
        rule = BucketRule(mapping, float(ratio[1:]))
        ids = bucket_ids(rule, (height, width), int(skip[4:]))[table]
        assert torch.equal(ids.long(), expected.long()), name
        assert rule.num_buckets + (skip != "skip0") == data[f"{name}__num_buckets"], name


def test_index_of_one_axis_equals_the_authors() -> None:
    data = read(FOLDER / "piecewise_1d.npz")
    for name, expected in data.items():
        if name.startswith("index__r"):
            rule = BucketRule("product", float(name.removeprefix("index__r")))
            assert torch.equal(rule.axis_index(data["offsets"]), expected.long()), name


def test_seven_indices_per_axis() -> None:
    """B097: 0 and 1 exact, 2 and 3 share, 4 and more share, odd-symmetric."""
    index = BucketRule("product", 1.9).axis_index(torch.arange(-20, 21))
    assert index.tolist() == [-3] * 17 + [-2, -2, -1, 0, 1, 2, 2] + [3] * 17


def test_ids_are_row_major_query_minus_key() -> None:
    ids = bucket_ids(BucketRule("product", 2.0), (2, 2))[0]
    assert ids[0, 3] == 3 * 9 + 3  # dy = dx = -1
    assert ids[2, 0] == 5 * 9 + 4  # dy = 1, dx = 0


def test_occurring_buckets_equal_the_authors() -> None:
    data = read(FOLDER / "bucket_occupancy.npz")["table"]
    names = ("euclidean", "quant", "product", "cross", "cross")
    seen: dict[tuple[object, ...], float] = {}
    for mapping, height, width, ratio, _, used, _, _ in data.tolist():
        key = (names[int(mapping)], int(height), int(width), ratio)
        seen[key] = seen.get(key, 0) + used  # cross: rows and columns
    for (mapping, height, width, ratio), used in seen.items():
        encoding = ContextualRpe(**SMALL, mapping=mapping, ratio=ratio)
        assert encoding.num_occurring((height, width)) == used, (mapping, ratio)


@pytest.mark.parametrize(
    ("mapping", "ratio", "rows", "occurring"),
    [("euc", 20, 82, 20), ("quant", 33, 134, 51), ("cross", 20, 82, 56), ("product", 1.9, 50, 50)],
)
def test_published_names_count_occurring_buckets(mapping, ratio, rows, occurring) -> None:
    encoding = ContextualRpe(**SMALL, mapping=mapping, ratio=ratio, skip=1)
    assert encoding.num_buckets == rows
    assert encoding.num_occurring(Grid((14, 14), prefix=1)) == occurring


def test_paper_and_code_differ_where_reported() -> None:
    def ids(mapping: str, ratio: float, semantics: str, size: tuple[int, int]) -> Tensor:
        table = BucketRule(mapping, ratio, semantics=semantics).offset_buckets(size)[0]
        return table[size[0] - 1 :, size[1] - 1 :]

    for ratio, count in ((1.9, 2), (2.0, 0), (20, 54), (33, 27)):
        code, paper = (ids("euclidean", ratio, who, (25, 38)) for who in ("code", "paper"))
        assert (code != paper).sum() == count
    for size, code_used, paper_used in (((14, 14), 50, 50), ((25, 38), 50, 67)):
        assert len(ids("quantization", 33, "code", size).unique()) == code_used
        assert len(ids("quantization", 33, "paper", size).unique()) == paper_used


def test_ids_are_compact() -> None:
    assert bucket_ids(BucketRule("product", 2.0), (12, 12))[0].dtype == torch.uint8
    assert bucket_ids(BucketRule("product", 20.0), (12, 12))[0].dtype == torch.int16
