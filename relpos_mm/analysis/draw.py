"""Pictures of patterns."""

from __future__ import annotations

from pathlib import Path

import torch
from mmengine.registry import MODELS, init_default_scope
from torch import nn

from relpos_mm.encodings import PositionEncoding, position_modules
from relpos_mm.encodings.grid import Size
from relpos_mm.engine.checkpoints import read_checkpoint, weights_of
from relpos_mm.engine.cli import load_config, require_settings
from relpos_mm.engine.errors import UserError

from .catalogue import build, position_of
from .pattern import TITLES, Pattern, pattern

_MAX_MAPS = 4
# Their first values already have a shape; a table's first values are noise of 0.02 or zero.
_SHOWN_AS_BUILT = {"MixedRope", "ConvPosition", "LocalEnhanced"}


def example(name: str, embed_dims: int = 128, num_heads: int = 4) -> tuple[Pattern, str]:
    """Pattern of a catalogue name on 14 x 14 tokens, and what its values are.

    Tables get normal random values, so that what shares a row, a column or a bucket shows.

    Raises:
        UserError: There is no such name.
    """
    grid = (14, 14)
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
    return pattern(encoding, grid, embed_dims, num_heads), values


def of_checkpoint(
    config: str, checkpoint: str, module: str | None = None, grid: Size | None = None
) -> tuple[Pattern, str]:
    """Pattern of an encoding in a trained model, and the module's name.

    Args:
        config: Config file of the model.
        checkpoint: Its weights.
        module: Which encoding, by (a part of) its module name; the first one when not given.
        grid: Tokens; by default the window that the encoding was built for, else 14 x 14.

    Raises:
        UserError: A file is missing or of another model, or no encoding's name has ``module`` in
            it.
    """
    cfg = load_config(config)
    require_settings(cfg, "model")
    init_default_scope(cfg.get("default_scope", "mmengine"))
    model = MODELS.build(cfg.model)
    rest = model.load_state_dict(weights_of(read_checkpoint(checkpoint)), strict=False)
    found = position_modules(model)
    absent = [key for key in rest.missing_keys if key.startswith(tuple(found))]
    if absent or len(rest.missing_keys) == len(model.state_dict()):
        named = ", ".join((absent or rest.missing_keys)[:2])
        raise UserError(
            f"{checkpoint} has no {named}; give the config that the file was trained with"
        )
    names = [name for name in found if module is None or module in name]
    if not names:
        raise UserError(f"no encoding's name contains {module!r}; there are {', '.join(found)}")
    encoding = found[names[0]]
    embed_dims, heads = _place(model, names[0])
    size = grid or getattr(encoding, "window_size", None) or (14, 14)
    return pattern(encoding, tuple(size), embed_dims, heads), names[0]


def draw(shown: Pattern, path: str | Path, title: str) -> Path:
    """Draw up to four maps side by side and write a small picture (type by the file's ending)."""
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
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Without the library's version in the file the same picture has the same bytes.
    figure.savefig(path, dpi=80, bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)
    return path


def _place(model: nn.Module, name: str) -> tuple[int, int]:
    """Channels and heads of the attention that an encoding belongs to."""
    owner = model.get_submodule(name.rsplit(".position.", 1)[0])
    if hasattr(owner, "num_heads"):
        return owner.qkv.in_features, owner.num_heads  # type: ignore[union-attr, return-value]
    encoding: PositionEncoding = model.get_submodule(name)  # type: ignore[assignment]
    widths = [p.shape[1] if p.ndim == 4 else p.shape[-1] for p in encoding.parameters()]
    return max(widths, default=getattr(encoding, "embed_dims", 96)), 1
