"""The suite ``backbones``: RelPosSwin against other libraries' Swin, with the same weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from relpos_mm.encodings.grid import Size
from relpos_mm.engine.errors import UserError
from relpos_mm.models import RelPosSwin
from relpos_mm.transfer import convert

from .agreement import largest_error, require_agreement
from .benchmark import Limit, Pair

SWIN_T: dict[str, Any] = {"embed_dims": 96, "depths": (2, 2, 6, 2), "num_heads": (3, 6, 12, 24)}
DROP_PATH = 0.2
# Inverse of the speed-up that the project set itself, by (library, size, step).
LIMITS: dict[tuple[str, str, str], Limit] = {
    ("mmdet", "1x512x683", "inference"): Limit(1 / 1.12),
    ("mmdet", "1x512x683", "training"): Limit(1 / 1.08, memory=1.0),
    ("mmdet", "2x224x224", "inference"): Limit(1 / 1.05),
    ("mmdet", "2x224x224", "training"): Limit(1 / 1.03),
}


class Unfit(Exception):
    """A library cannot take the input, or is not installed; the message says which."""


class _WithNorms(nn.Module):
    """A classifier's stages with the output norms that dense models have."""

    def __init__(self, stages: Callable[[Tensor], Sequence[Tensor]], ours: RelPosSwin) -> None:
        super().__init__()
        self.stages = stages
        self.norms = nn.ModuleList(getattr(ours, f"norm{i}") for i in ours.out_indices)

    def forward(self, x: Tensor) -> list[Tensor]:
        maps = zip(self.stages(x), self.norms, strict=True)
        return [norm(one).permute(0, 3, 1, 2).contiguous() for one, norm in maps]


def _mmdet(ours: RelPosSwin, arch: Mapping[str, Any], hw: Size) -> nn.Module:
    from mmdet.models.backbones.swin import SwinTransformer

    theirs = SwinTransformer(**arch, window_size=7, drop_path_rate=DROP_PATH)
    return _loaded(theirs, ours, "mm")


def _mmpretrain(ours: RelPosSwin, arch: Mapping[str, Any], hw: Size) -> nn.Module:
    from mmpretrain.models.backbones.swin_transformer import SwinTransformer

    theirs = SwinTransformer(
        arch=dict(arch),
        window_size=7,
        drop_path_rate=DROP_PATH,
        out_indices=(0, 1, 2, 3),
        pad_small_map=True,
    )
    return _loaded(theirs, ours, "mm")


def _torchvision(ours: RelPosSwin, arch: Mapping[str, Any], hw: Size) -> nn.Module:
    from torchvision.models.swin_transformer import SwinTransformer

    _require_fit("torchvision", hw, 4)
    theirs = SwinTransformer(
        [4, 4],
        arch["embed_dims"],
        list(arch["depths"]),
        list(arch["num_heads"]),
        [7, 7],
        stochastic_depth_prob=DROP_PATH,
    )
    features = _loaded(theirs, ours, "torchvision").features

    def stages(x: Tensor) -> list[Tensor]:
        outputs = []
        for i, layer in enumerate(features):  # type: ignore[arg-type]
            x = layer(x)
            if i % 2:
                outputs.append(x)
        return outputs

    model = _WithNorms(stages, ours)
    model.theirs = features  # a submodule, so that train() and eval() reach it
    return model


def _timm(ours: RelPosSwin, arch: Mapping[str, Any], hw: Size) -> nn.Module:
    if find_spec("timm") is None:
        raise Unfit("timm is not installed (pip install timm)")
    from timm.models.swin_transformer import SwinTransformer

    _require_fit("timm", hw, 32)
    theirs = SwinTransformer(
        img_size=hw,
        embed_dim=arch["embed_dims"],
        depths=arch["depths"],
        num_heads=arch["num_heads"],
        window_size=7,
        drop_path_rate=DROP_PATH,
        num_classes=0,
    )
    _loaded(theirs, ours, "timm")

    def stages(x: Tensor) -> list[Tensor]:
        x, outputs = theirs.patch_embed(x), []
        for layer in theirs.layers:  # each begins with its merging
            x = layer(x)
            outputs.append(x)
        return outputs

    model = _WithNorms(stages, ours)
    model.theirs = theirs
    return model


# Library -> its network, and the rule for small maps that it follows.
LIBRARIES: dict[str, tuple[Callable[..., nn.Module], str]] = {
    "mmdet": (_mmdet, "pad"),
    "mmpretrain": (_mmpretrain, "pad"),
    "torchvision": (_torchvision, "shrink"),
    "timm": (_timm, "shrink"),
}


def _require_fit(library: str, hw: Size, of: int) -> None:
    if hw[0] % of or hw[1] % of:
        raise Unfit(f"{library} takes multiples of {of} pixels, not {hw[0]} x {hw[1]}")
    last = [-(-side // 32) for side in hw]
    if min(last) <= 7 and last != [7, 7]:
        raise Unfit(
            f"{library} has a rule of its own for maps below a window, {last[0]} x {last[1]} here"
        )


def _loaded(theirs: nn.Module, ours: RelPosSwin, layout: str) -> nn.Module:
    """Give ``theirs`` the weights of ``ours``; only heads, final norms and buffers stay its own."""
    state = convert(ours.state_dict(), target=layout)
    result = theirs.load_state_dict(state, strict=False)
    apart = ("relative_position_index", "attn_mask", "head.", "norm.")
    left = [key for key in result.missing_keys if not key.endswith(apart[:2])]
    left = [key for key in left if not key.startswith(apart[2:])]
    if left or result.unexpected_keys:
        raise UserError(f"{layout} weights do not fit: {left[:3]} {result.unexpected_keys[:3]}")
    return theirs


class Step:
    """One network on one picture."""

    def __init__(self, model: nn.Module, x: Tensor, dtype: torch.dtype) -> None:
        self.model, self.x, self.dtype = model, x, dtype

    def forward(self, x: Tensor) -> Sequence[Tensor]:
        with torch.autocast(x.device.type, self.dtype, enabled=self.dtype != torch.float32):
            return self.model(x)

    def inference(self) -> list[Tensor]:
        """Outputs of all stages in evaluation mode, without autograd."""
        self.model.eval()
        with torch.no_grad():
            return list(self.forward(self.x))

    def training(self, mode: bool = True) -> list[Tensor]:
        """Outputs and the gradient of the picture; parameters' gradients are computed too."""
        self.model.train(mode)
        x = self.x.detach().requires_grad_()
        outs = self.forward(x)
        torch.autograd.backward(outs, [out.detach().sign() for out in outs])
        self.model.zero_grad(set_to_none=True)
        return [*(out.detach() for out in outs), x.grad]  # type: ignore[list-item]


def pairs(
    libraries: Iterable[str],
    sizes: Iterable[str],
    steps: Iterable[str],
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    arch: Mapping[str, Any] = SWIN_T,
    note: Callable[[str], None] = print,
) -> Iterator[Pair]:
    """Yield RelPosSwin against each library, after outputs and the picture's gradient agree.

    Sizes are written ``2x224x224``. What cannot run is told to ``note``.

    Raises:
        UserError: An unknown library, a size that is none, or a result that differs.
    """
    for size in sizes:
        batch, *hw = _numbers(size)
        x = torch.randn(batch, 3, *hw, generator=torch.Generator().manual_seed(0)).to(device)
        for library in libraries:
            if library not in LIBRARIES:
                raise UserError(f"no library is called {library!r}; known: {', '.join(LIBRARIES)}")
            make, rule = LIBRARIES[library]
            torch.manual_seed(0)
            ours = RelPosSwin(**arch, drop_path_rate=DROP_PATH, small_map=rule)  # type: ignore[arg-type]
            try:
                theirs = make(ours, arch, (hw[0], hw[1]))
            except Unfit as unfit:
                note(f"left out at {size}: {unfit}")
                continue
            a, b = (Step(model.to(device), x, dtype) for model in (theirs, ours))
            error = largest_error(b.training(False), a.training(False))
            require_agreement(f"RelPosSwin and {library} at {size}", error, dtype)
            for step in steps:
                yield Pair(
                    suite="backbones",
                    size=size,
                    base=library,
                    name="RelPosSwin",
                    step=step,
                    run_base=partial(getattr(a, step)),
                    run=partial(getattr(b, step)),
                    error=error,
                    limit=LIMITS.get((library, size, step)) if dtype == torch.float32 else None,
                )


def _numbers(size: str) -> list[int]:
    parts = size.split("x")
    if len(parts) != 3 or not all(part.isdigit() and int(part) for part in parts):
        raise UserError(f"a size is written BATCHxHEIGHTxWIDTH, as 2x224x224, not {size!r}")
    return [int(part) for part in parts]
