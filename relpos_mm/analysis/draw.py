"""Pictures of patterns."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import torch
from mmengine.registry import MODELS, init_default_scope
from torch import nn

from relpos_mm.encodings import PositionEncoding, position_modules
from relpos_mm.encodings.grid import Size
from relpos_mm.engine.checkpoints import read_checkpoint, weights_of
from relpos_mm.engine.cli import load_config, require_settings
from relpos_mm.engine.errors import UserError, building
from relpos_mm.engine.saving import write_atomically
from relpos_mm.engine.weights import WeightSources, match

from .catalogue import build, position_of
from .pattern import TITLES, Pattern, pattern

_MAX_MAPS = 4
# Their first values already have a shape; a table's first values are noise of 0.02 or zero.
_SHOWN_AS_BUILT = {"MixedRope", "ConvPosition", "LocalEnhanced"}
# Without the time and the library's version in the file the same picture has the same bytes.
_LEFT_OUT: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def example(
    name: str, grid: Size = (14, 14), embed_dims: int = 128, num_heads: int = 4
) -> tuple[Pattern, str]:
    """Pattern of a catalogue name on a grid of tokens, and what its values are.

    Tables get normal random values, so that what shares a row, a column or a bucket shows.

    Raises:
        UserError: There is no such name, or it cannot be shown on this grid.
    """
    position = position_of(name)
    window = (7, 7) if name == "abswin" else grid
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        encoding = build(position, grid=window, embed_dims=embed_dims, num_heads=num_heads)[0]
        parameters = list(encoding.parameters())
        values = "values as built" if parameters else "no parameters"
        if parameters and position[0]["type"] not in _SHOWN_AS_BUILT:
            values = "random values"
            for parameter in parameters:
                nn.init.normal_(parameter)
    return _pattern(name, encoding, grid, embed_dims, num_heads), values


def of_checkpoint(
    config: str, checkpoint: str, module: str | None = None, grid: Size | None = None
) -> tuple[Pattern, str]:
    """Pattern of an encoding in a trained model, and the module's name.

    Args:
        config: Config file of the model.
        checkpoint: Its weights; heads may be absent.
        module: Which encoding, by (a part of) its module name; the first one when not given.
        grid: Tokens; by default those that its table was built for (a window, or the map of an
            absolute one), else 14 x 14.

    Raises:
        UserError: A file is missing or of another model, the model has no encoding, none's name
            has ``module`` in it, or it cannot be shown on this grid.
    """
    cfg = load_config(config)
    require_settings(cfg, "model")
    init_default_scope(cfg.get("default_scope", "mmengine"))
    with building("the model", config):
        model = MODELS.build(cfg.model)
    found = position_modules(model)
    if not found:
        raise UserError(f"{config}: position is [], nothing to draw; give one with an encoding")
    names = [name for name in found if module is None or module in name]
    if not names:
        raise UserError(f"no encoding's name contains {module!r}; there are {', '.join(found)}")
    _load(model, checkpoint, tuple(f"{name}." for name in found))
    encoding = found[names[0]]
    embed_dims, heads = _place(model, names[0])
    size = grid or _own_grid(encoding) or (14, 14)
    return _pattern(names[0], encoding, size, embed_dims, heads), names[0]


def _load(model: nn.Module, checkpoint: str, encodings: tuple[str, ...]) -> None:
    """Load a file's values as they are: a table resized for this model is not what was trained.

    Raises:
        UserError: The file is of another encoding or model.
    """
    content = read_checkpoint(checkpoint)
    weights = weights_of(content)
    remedy = "give the config that the file was trained with"
    try:
        WeightSources(model).add_checkpoint(checkpoint, content, whole=False)
    except UserError as error:
        raise UserError(f"{error}\nTo draw what was trained, {remedy}.") from None
    own = model.state_dict()
    fit = match(own, weights)
    # Of the rest a head may be another task's; the part around the encodings may not.
    host = tuple(f"{name}." for name, m in model.named_modules() if hasattr(m, "position_cfg"))
    wrong = [key for key in fit.missing + fit.resized if key.startswith(encodings)]
    wrong += [key for key in fit.wrong_shape if key.startswith(host)]
    if wrong:
        theirs = tuple(weights[wrong[0]].shape) if wrong[0] in weights else "absent"
        raise UserError(
            f"{checkpoint}: {wrong[0]} is {theirs} there, {tuple(own[wrong[0]].shape)} here; "
            f"{remedy}"
        )
    model.load_state_dict({key: weights[key] for key in fit.loaded}, strict=False)


def _own_grid(encoding: PositionEncoding) -> Size | None:
    """Tokens that an encoding's table was built for; of two tables the larger one's."""
    for name in ("grid_size", "global_size", "window_size"):
        if size := getattr(encoding, name, None):
            return size[0], size[1]
    return None


def _pattern(
    name: str, encoding: PositionEncoding, grid: Size, embed_dims: int, num_heads: int
) -> Pattern:
    try:
        return pattern(encoding, grid, embed_dims, num_heads)
    except ValueError as error:  # such as more tokens than the window has
        raise UserError(f"{name} on {grid[0]} x {grid[1]} tokens: {error}") from error


def draw(shown: Pattern, path: str | Path, title: str) -> Path:
    """Draw up to four maps side by side and write a small picture.

    Args:
        shown: The maps.
        path: Ends in ``.png``, ``.svg`` or ``.pdf``. There is a whole picture, or none.
        title: First line above the maps.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    maps = shown.maps[:_MAX_MAPS].double()
    # What is hidden (LookHere's -infinity) stays white.
    finite = maps[maps.isfinite()]
    low, high = finite.min().item(), finite.max().item()
    figure, axes = plt.subplots(1, len(maps), figsize=(1.9 * len(maps) + 0.9, 2.5), squeeze=False)
    picture = None
    for axis, values, label, dot in zip(axes[0], maps, shown.labels, shown.dots, strict=False):
        shown_values = values.masked_fill(~values.isfinite(), float("nan"))
        picture = axis.imshow(shown_values, vmin=low, vmax=high, cmap="viridis")
        axis.set_title(label, fontsize=8)
        axis.set(xticks=[], yticks=[])
        if dot is not None:
            axis.plot(dot[1], dot[0], "r.", markersize=5)
    figure.colorbar(
        picture,  # type: ignore[arg-type]
        ax=axes[0].tolist(),
        fraction=0.05,
        pad=0.02,
    ).ax.tick_params(labelsize=7)
    figure.suptitle(f"{title}\n{TITLES[shown.kind]}", fontsize=8, y=1.0)
    path, content = Path(path), BytesIO()
    kind = path.suffix[1:]
    with matplotlib.rc_context({"svg.hashsalt": "relpos_mm"}):
        figure.savefig(
            content, format=kind, dpi=80, bbox_inches="tight", metadata=dict(_LEFT_OUT[kind])
        )
    plt.close(figure)
    write_atomically(path, content.getvalue())
    return path


def _place(model: nn.Module, name: str) -> tuple[int, int]:
    """Channels and heads of the attention that an encoding belongs to."""
    owner = model.get_submodule(name.rsplit(".position.", 1)[0])
    if hasattr(owner, "num_heads"):
        return owner.qkv.in_features, owner.num_heads  # type: ignore[union-attr, return-value]
    encoding: PositionEncoding = model.get_submodule(name)  # type: ignore[assignment]
    widths = [p.shape[1] if p.ndim == 4 else p.shape[-1] for p in encoding.parameters()]
    return max(widths, default=getattr(encoding, "embed_dims", 96)), 1
