"""The encoding that docs/encodings.md adds in 20 lines, put through everything."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from relpos_mm import encodings
from relpos_mm.encodings import position_modules, position_slug
from relpos_mm.models import RelPosSwin
from relpos_mm.registry import POSITIONS

from . import sweep

DOC = Path(__file__).parents[2] / "docs" / "encodings.md"


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Both code blocks at work: the first as a file of the package, the second as a sweep case."""
    section = DOC.read_text(encoding="utf-8").split("## Add one in 20 lines")[1]
    source, case = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    name = f"{encodings.__name__}.manhattan_bias"
    file = tmp_path_factory.mktemp("docs") / "manhattan_bias.py"
    file.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    namespace = {**vars(sweep), "ManhattanBias": module.ManhattanBias, "source": source}
    exec(case, namespace)
    yield namespace
    POSITIONS.module_dict.pop("ManhattanBias")
    sys.modules.pop(name)


def test_it_is_as_short_as_promised(example: dict[str, Any]) -> None:
    lines = [line for line in example["source"].splitlines() if line.strip()]
    assert len(lines) <= 20


@pytest.mark.parametrize("check", sweep.CHECKS, ids=lambda check: check.__name__)
def test_it_passes_the_sweep(example: dict[str, Any], check) -> None:
    check(example["CASE"])


def test_it_trains_in_the_backbone_next_to_others(example: dict[str, Any]) -> None:
    position = [{"type": "ManhattanBias"}, {"type": "AbsoluteTable"}]
    assert position_slug(position) == "abs_manhattan"
    model = RelPosSwin(
        embed_dims=12,
        depths=(2, 2),
        num_heads=(1, 2),
        out_indices=(0, 1),
        position=position,
        pretrain_img_size=64,
    )
    slopes = [e.slope for e in position_modules(model).values() if e.name == "manhattan_bias"]
    assert [len(slope) for slope in slopes] == [1, 1, 2, 2]
    sum(out.sin().sum() for out in model(torch.randn(1, 3, 50, 70))).backward()
    assert all(slope.grad.ne(0).all() for slope in slopes)
