"""Patterns and pictures say what the encodings do."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from relpos_mm import encodings as enc
from relpos_mm.analysis.catalogue import CATALOGUE
from relpos_mm.analysis.draw import draw, example, of_checkpoint
from relpos_mm.analysis.pattern import pattern
from relpos_mm.engine.cli import run_tool
from relpos_mm.engine.errors import UserError

GRID, CENTRE = (5, 7), (2, 3)


def test_a_table_is_shown_by_offset() -> None:
    bias = enc.RelativeBias(num_heads=2, window_size=GRID)
    table = bias.relative_position_bias_table.detach().view(9, 13, 2)
    shown = pattern(bias, GRID, 16, 2)
    assert (shown.kind, shown.labels) == ("bias", ("head 0", "head 1"))
    for y, x in ((0, 0), (2, 3), (4, 1)):
        offset = (CENTRE[0] - y + 4, CENTRE[1] - x + 6)
        torch.testing.assert_close(shown.maps[:, y, x], table[offset])


def test_contextual_rows_are_shown_by_their_length() -> None:
    rpe = enc.ContextualRpe(embed_dims=16, num_heads=2, ratio=20.0)
    torch.nn.init.normal_(rpe.rpe_k.lookup_table_weight)
    shown = pattern(rpe, GRID, 16, 2)
    assert (shown.kind, shown.labels) == ("content", ("all heads",))
    lengths = rpe.rpe_k.lookup_table_weight.detach()[0].norm(dim=0) * 8**-0.5
    centre_row = 40 * 81 + 40  # offset (0, 0) with 81 indices per axis
    assert shown.maps[0][CENTRE].item() == pytest.approx(lengths[centre_row].item(), rel=1e-5)


def test_rotary_is_a_mean_of_cosines() -> None:
    rope = enc.AxialRope(embed_dims=8, num_heads=1, theta=100.0)
    shown = pattern(rope, GRID, 8, 1)
    bands = torch.tensor([1.0, 100**-0.5])  # per axis, d = 8
    for y, x in ((2, 3), (0, 6), (4, 0)):
        angles = torch.cat((bands * (y - CENTRE[0]), bands * (x - CENTRE[1])))
        assert shown.maps[0, y, x].item() == pytest.approx(angles.cos().mean().item(), abs=1e-6)


def test_absolute_tables_are_shown_as_similarity() -> None:
    shown = pattern(enc.AbsoluteTable(embed_dims=8, grid_size=GRID), GRID, 8, 1)
    assert shown.kind == "similarity"
    for values, dot in zip(shown.maps, shown.dots, strict=True):
        assert values[dot].item() == pytest.approx(1, abs=1e-5)
        assert values.abs().max() <= 1 + 1e-5


@pytest.mark.parametrize("name", ["abs", "sin2d", "abswin", "peg", "lepe"])
def test_one_token_has_the_kind_of_many(name: str) -> None:
    assert example(name, (1, 1))[0].kind == example(name)[0].kind


@pytest.mark.parametrize("cls", [enc.ConvPosition, enc.LocalEnhanced])
def test_convolutions_show_the_border(cls: type) -> None:
    shown = pattern(cls(embed_dims=8), GRID, 8, 2)
    assert shown.kind == "border"
    inside = shown.maps[0, 1:-1, 1:-1]
    torch.testing.assert_close(inside, inside[0, 0].expand_as(inside))
    assert (shown.maps[0, 0, 0] - inside[0, 0]).abs() > 1e-3


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_encoding_has_a_pattern(name: str) -> None:
    shown, _ = example(name)
    assert shown.maps.shape[1:] == (14, 14)
    assert shown.maps.isfinite().any()
    assert len(shown.maps) == len(shown.labels) == len(shown.dots)


def test_pictures_are_small_and_hide_what_is_hidden(tmp_path: Path) -> None:
    shown, values = example("lookhere")
    assert not shown.maps.isfinite().all()
    path = draw(shown, tmp_path / "deep" / "lookhere.png", values)
    assert 1_000 < path.stat().st_size < 40_000


def test_an_encoding_that_adds_nothing_is_refused() -> None:
    with pytest.raises(UserError, match="position_encoding: no hook adds anything"):
        pattern(enc.PositionEncoding(), GRID, 8, 2)


def test_a_trained_model_is_drawn_by_module(repo_root: Path, tmp_path: Path) -> None:
    from mmengine.config import Config
    from mmengine.registry import MODELS, init_default_scope

    config = repo_root / "configs" / "mini" / "cls_swin_t_relonly.py"
    cfg = Config.fromfile(config)
    init_default_scope(cfg.default_scope)
    model = MODELS.build(cfg.model)
    names = list(enc.position_modules(model))
    last = enc.position_modules(model)[names[-1]]
    torch.nn.init.constant_(last.relative_position_bias_table, 0.25)
    torch.save({"state_dict": model.state_dict()}, tmp_path / "weights.pth")
    shown, found = of_checkpoint(str(config), str(tmp_path / "weights.pth"), names[-1])
    assert found == names[-1]
    assert shown.maps.eq(0.25).all()
    with pytest.raises(UserError, match=r"no encoding's name contains 'stages\.9'"):
        of_checkpoint(str(config), str(tmp_path / "weights.pth"), "stages.9")
    del (state := model.state_dict())["head.fc.weight"]
    torch.save(state, tmp_path / "headless.pth")
    assert (
        of_checkpoint(str(config), str(tmp_path / "headless.pth"), names[-1])[0].maps.eq(0.25).all()
    )
    del state[f"{names[0]}.relative_position_bias_table"]
    torch.save(state, tmp_path / "part.pth")
    with pytest.raises(UserError, match=r"part\.pth .* differ: .*relative_position_bias_table"):
        of_checkpoint(str(config), str(tmp_path / "part.pth"))


def random_weights(config: str, path: Path) -> str:
    from mmengine.config import Config
    from mmengine.registry import MODELS, init_default_scope

    cfg = Config.fromfile(config)
    init_default_scope(cfg.default_scope)
    torch.save({"state_dict": MODELS.build(cfg.model).state_dict()}, path)
    return str(path)


def test_an_absolute_table_is_drawn_on_its_own_grid(repo_root: Path, tmp_path: Path) -> None:
    config = str(repo_root / "configs" / "mini" / "cls_swin_t_absonly.py")
    shown, name = of_checkpoint(config, random_weights(config, tmp_path / "w.pth"))
    assert name == "backbone.position.absolute_table"
    assert (shown.kind, shown.maps.shape[1:]) == ("similarity", (12, 12))


@pytest.fixture
def tool(repo_root: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs the tool on a command line and gives its exit code."""
    main = runpy.run_path(str(repo_root / "tools" / "draw_encoding.py"))["main"]

    def run(*words: str | Path) -> int:
        monkeypatch.setattr("sys.argv", ["draw_encoding.py", *map(str, words)])
        return run_tool(main)

    return run


@pytest.mark.parametrize(
    ("ending", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")]
)
def test_every_format_is_written_whole_and_alike(
    tmp_path: Path,
    tool: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    ending: str,
    start: bytes,
) -> None:
    paths = [tmp_path / f"{number}.{ending}" for number in range(2)]
    for path in paths:
        assert tool("rel", "--grid", "2", "3", "--out", path) == 0
    assert "on (2, 3) tokens" in capsys.readouterr().out
    first, second = (path.read_bytes() for path in paths)
    assert first.startswith(start)
    assert first == second
    assert sorted(tmp_path.iterdir()) == paths


def test_a_failed_drawing_leaves_and_says_nothing(
    tmp_path: Path,
    tool: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*args: object, **settings: object) -> None:
        raise ValueError("no such pen")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", broken)
    with pytest.raises(ValueError, match="no such pen"):
        tool("rel", "--out", tmp_path / "a.svg")
    assert capsys.readouterr().out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("grid", [("0", "3"), ("-1", "4")])
def test_a_grid_without_tokens_is_refused(
    tmp_path: Path, tool: Callable[..., int], grid: tuple[str, str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        tool("rel", "--grid", *grid, "--out", tmp_path / "a.png")


MINI, SMALL = "configs/mini/cls_swin_t_relonly.py", "configs/mini/cls_swin_t_absrel.py"


@pytest.mark.parametrize(
    ("config", "trained_with", "more", "message"),
    [
        (MINI, MINI, ("--grid", "14", "14"), "grid 14 x 14 is larger than the window 4 x 4"),
        (MINI, SMALL, (), "differ: only one of them has backbone.position.absolute_table"),
        (SMALL, MINI, (), "give the config that the file was trained with"),
        ("configs/cls_swin_t_relonly.py", MINI, (), "the config that the file was trained with"),
        ("configs/mini/cascade_swin_t_relonly.py", MINI, (), "(25, 4) there, (49, 4) here"),
        ("configs/mini/cls_swin_t_noenc.py", MINI, (), "position is [], nothing to draw"),
    ],
)
def test_what_was_not_trained_so_is_not_drawn(
    repo_root: Path,
    tmp_path: Path,
    tool: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    config: str,
    trained_with: str,
    more: tuple[str, ...],
    message: str,
) -> None:
    weights = random_weights(str(repo_root / trained_with), tmp_path / "w.pth")
    out = tmp_path / "a.png"
    words = ("--config", repo_root / config, "--checkpoint", weights, "--out", out)
    assert tool(*words, *more) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


def test_a_name_is_one_encoding(
    tmp_path: Path, tool: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert tool("rel", "--module", "foo", "--out", tmp_path / "a.png") == 2
    assert "--module: rel is one encoding" in capsys.readouterr().err
