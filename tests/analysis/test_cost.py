"""Counted costs against what can be worked out by hand."""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

from relpos_mm.analysis.cost import Cost, config_cost, model_cost
from relpos_mm.analysis.cost_report import cost_table
from relpos_mm.engine.cli import run_tool
from relpos_mm.engine.errors import UserError

DETR = {"type": "RelPosDetrEncoder", "num_layers": 2, "embed_dims": 32, "num_heads": 4}
DETR |= {"feedforward_channels": 64}
BLOCKS = (2, 2, 6, 2)


def swin_t(*position: dict, size: tuple[int, int] = (224, 224)) -> Cost:
    return model_cost({"type": "RelPosSwin", "position": list(position)}, size, "swin")


def test_swin_t_has_its_published_count() -> None:
    """4.5 GMAC at 224 (Swin Transformer, Table 1), the sum of its matrix products by formula."""
    total = 56 * 56 * 96 * 48  # patches of 4 x 4 x 3
    for stage, blocks in enumerate(BLOCKS):
        tokens, width = (56 // 2**stage) ** 2, 96 * 2**stage
        linears = 4 * width**2 + 2 * 4 * width**2  # qkv and output, MLP
        attention = 2 * 49 * width  # logits and values; heads share the width
        total += blocks * tokens * (linears + attention)
        if stage < 3:
            total += tokens // 4 * 4 * width * 2 * width  # merging
    cost = swin_t({"type": "RelativeBias"})
    assert cost.gmac == pytest.approx(total / 1e9, rel=1e-12)
    assert round(cost.gmac, 1) == 4.5
    assert cost.position_params == 23_322
    assert cost.by_encoding == {"relative_bias": 23_322}
    assert cost.extra_gmac == 0  # a gather and a sum
    assert cost.extra_mib > 0
    assert (cost.encoding, cost.kernels) == ("relonly", ("eager",))


def test_contextual_terms_are_counted() -> None:
    """Shaw's keys: every query meets (2 clip + 1)^2 rows, whatever the number of keys."""
    cost = swin_t({"type": "ShawRelative", "clip": 3})
    expected = sum(
        blocks * (56 // 2**stage) ** 2 * 49 * 96 * 2**stage for stage, blocks in enumerate(BLOCKS)
    )
    assert cost.extra_gmac == pytest.approx(expected / 1e9, rel=1e-9)


def test_detr_counts_its_encoder_and_keeps_what_backward_needs() -> None:
    sines = {"type": "Sinusoid2d", "form": "detr", "site": "qk_input"}
    irpe = {"type": "ContextualRpe", "ratio": 2.0}
    cost = model_cost({**DETR, "position": [sines, irpe]}, (96, 128), "detr")
    tokens, width, rows = 3 * 4, 32, 81
    layer = 4 * width**2 + 2 * 64 * width + 2 * tokens * width
    assert cost.gmac * 1e9 == pytest.approx(2 * tokens * (layer + width * rows))
    assert cost.by_encoding == {"sinusoid2d": 0, "contextual_rpe": 2 * 8 * rows}
    # Each pair's logit is kept as attention already; the list adds rows of buckets and indices.
    assert cost.extra_mib > 0
    assert cost.encoding == "irpe_k"


def test_large_maps_run_in_blocks() -> None:
    cfg = {**DETR, "num_layers": 1, "position": [{"type": "ContextualRpe", "ratio": 2.0}]}
    assert model_cost(cfg, (736, 736), "detr").kernels == ("blocks",)


def test_a_config_is_counted_with_its_heads_parameters(repo_root: Path) -> None:
    cost = config_cost(repo_root / "configs" / "mini" / "cls_swin_t_relonly.py", (64, 64))
    assert (cost.encoding, cost.host, cost.size) == ("relonly", "RelPosSwin", (64, 64))
    assert cost.params > cost.position_params > 0
    table = cost_table([cost])
    assert "cls_swin_t_relonly" in table
    assert f"relative_bias {cost.position_params:,}" in table


def test_a_model_without_a_list_is_refused() -> None:
    with pytest.raises(UserError, match=r"no part of mmdet\.ResNet takes a list of encodings"):
        model_cost({"type": "mmdet.ResNet", "depth": 18}, (64, 64), "resnet")


def test_a_missing_config_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Config not found"):
        config_cost(tmp_path / "none.py")
    (tmp_path / "data_only.py").write_text("data = 1\n")
    with pytest.raises(UserError, match=r"data_only\.py: no model = dict"):
        config_cost(tmp_path / "data_only.py")


FAMILIES = [
    *(f"mini/{n}.py" for n in ("cls_swin_t_absrel", "cascade_swin_t_absrel", "detr_r50_irpe_k")),
    *("mini/upernet_swin_t_absrel.py", "mini/detr_r50_irpe_bias.py", "cls_deit_s_irpe_k.py"),
    "cascade_swin_t_relonly.py",
]


@pytest.mark.parametrize("config", FAMILIES)
def test_every_family_of_models_is_counted(repo_root: Path, config: str) -> None:
    cost = config_cost(repo_root / "configs" / config, (64, 64))
    assert cost.params > cost.position_params > 0
    assert cost.gmac > cost.extra_gmac >= 0


@pytest.fixture
def tool(repo_root: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs the tool on a command line and gives its exit code."""
    main = runpy.run_path(str(repo_root / "tools" / "cost.py"))["main"]

    def run(*words: str | Path) -> int:
        monkeypatch.setattr("sys.argv", ["cost.py", *map(str, words)])
        return run_tool(main)

    return run


def test_one_bad_config_does_not_cost_the_others_their_table(
    repo_root: Path,
    tmp_path: Path,
    tool: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    good = repo_root / "configs" / "mini" / "cls_swin_t_relonly.py"
    bad = tmp_path / "bad.py"
    bad.write_text(f"_base_ = {str(good)!r}\nmodel = dict(backbone=dict(window_size='four'))\n")
    out = tmp_path / "new" / "x.json"
    assert tool(bad, good, "--shape", "64", "64", "--json", out) == 2
    said = capsys.readouterr()
    assert "| cls_swin_t_relonly " in said.out
    assert said.err.count("error: ") == 1
    assert f"{bad}: the model cannot be built: " in said.err
    assert [cost["config"] for cost in json.loads(out.read_text())] == [good.stem]


def test_nothing_counted_leaves_no_file(
    tmp_path: Path, tool: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "x.json"
    assert tool(tmp_path / "nope.py", "--json", out) == 2
    assert not out.parent.exists()
    assert "Config not found" in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert tool(tmp_path / "nope.py", "--json", tmp_path / "file" / "x.json") == 2
    assert "--json: " in (said := capsys.readouterr().err)
    assert "is no folder; name another file" in said
    assert tool(tmp_path / "nope.py", "--json", tmp_path) == 2
    assert f"--json: {tmp_path} is a folder" in capsys.readouterr().err


@pytest.mark.parametrize("shape", [("0", "32"), ("32", "-5")])
def test_a_shape_without_pixels_is_refused(
    tool: Callable[..., int], shape: tuple[str, str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        tool("any.py", "--shape", *shape)
