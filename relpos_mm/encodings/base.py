"""The interface of a position encoding: four compute hooks, one checkpoint hook, three flags."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from mmengine.logging import print_log
from torch import Tensor, nn

from .arguments import require_flags
from .grid import Grid, Size
from .lookup import Lookup, ValueLookup
from .resize import ResizeMode

Site = Literal["stem", "stage", "block", "qk_input"]
Padding = Literal["safe", "needs_valid", "unsafe"]
# Arguments of any encoding that say where it stands, not what it computes there.
_PLACE = {"embed_dims", "num_heads", "window_size", "grid_size", "shifted"}


@dataclass(frozen=True)
class Resized:
    """One entry of a checkpoint that an encoding resized to its own shape."""

    key: str
    old_shape: tuple[int, ...]
    new_shape: tuple[int, ...]
    how: str

    def __str__(self) -> str:
        return f"{self.key}: {self.old_shape} -> {self.new_shape} ({self.how})"


class PositionEncoding(nn.Module):
    """Base of all encodings. Every hook does nothing until a subclass overrides it.

    A host (window attention, a ViT block, DETR's encoder) cuts the map into rectangular grids and
    hands each one over as a :class:`Grid`; prefix tokens are stripped before a hook sees q, k or a
    bias, masks are added by the host. So one object works in every host.

    Rules that make a list of encodings independent of its order: ``embed`` results add up,
    ``bias`` results are summed and see the raw q and k, ``value`` results are summed; only
    ``rotate`` is chained in list order.

    Class attributes:
        slug: Short name for file names and tables.
        free: Arguments that may differ between a trained file and the config it is loaded into:
            sizes, which tensors show or are resized for, and what matters in training alone. All
            others must agree.
        site: Where ``embed`` is called: ``stem`` (once, after the patch embedding), ``stage`` (once
            per stage, after its first block), ``block`` (at the start of every block) or
            ``qk_input`` (on the input of the q and k projections).
        sees_prefix: True when prefix tokens take part: ``bias``, ``lookups`` and the prefix rows of
            a bias are then the encoding's own. Otherwise hosts strip them and add nothing there.
        needs_attn: True when ``value_attn`` needs the attention matrix, which rules out fused
            kernels.
        translation_equivariant: Whether moving the content moves the result and nothing else.
        padding: Whether an image's result is independent of the padding that its batch mates
            cause: ``safe``, ``needs_valid`` (only when ``Grid.valid`` is given) or ``unsafe``.
    """

    slug: ClassVar[str]
    free: ClassVar[frozenset[str]] = frozenset()
    site: Site = "block"
    sees_prefix: bool = False
    needs_attn: bool = False
    translation_equivariant: ClassVar[bool] = True
    padding: Padding = "safe"

    def __new__(cls, *args: Any, **arguments: Any) -> Any:
        # Here and not in each constructor, so that every encoding has it; a copy has no arguments.
        require_flags(cls, arguments)
        return super().__new__(cls)

    @property
    def name(self) -> str:
        """Snake-case class name, the encoding's key in state dicts."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__).lower()

    @classmethod
    def slug_of(cls, cfg: Mapping[str, Any]) -> str:
        """Return the slug of the encoding that ``cfg`` describes; some depend on an option."""
        return cls.slug

    @classmethod
    def options_of(cls, cfg: Mapping[str, Any]) -> dict[str, Any]:
        """Return what decides the function of the encoding that ``cfg`` describes.

        These are all arguments, defaults included, but sizes and those in ``free``.
        """
        return {
            name: cfg.get(name, argument.default)
            for name, argument in inspect.signature(cls).parameters.items()
            if name not in _PLACE | cls.free
        }

    def bind(self, *, proj: nn.Module | None = None) -> None:
        """Meet the host's q/k/v projection once, after construction."""

    def embed(self, x: Tensor, grid: Grid) -> Tensor:
        """Return the whole map ``(B, H, W, C)`` with position added, before any windows."""
        return x

    def embed_prefix(self, x: Tensor) -> Tensor:
        """Return the prefix tokens ``(B, P, C)`` with what belongs to them added."""
        return x

    def rotate(self, q: Tensor, k: Tensor, grid: Grid) -> tuple[Tensor, Tensor]:
        """Return q and k ``(B, h, N, d)`` changed in place of the raw ones, shapes kept."""
        return q, k

    def bias(
        self, q: Tensor, k: Tensor, grid: Grid, scale: float
    ) -> Tensor | tuple[Tensor, Tensor] | None:
        """Return logits to add AFTER scaling, broadcastable to ``(B, h, Nq, Nk)``.

        ``q`` and ``k`` are raw (not rotated, not scaled); a method that belongs inside the
        ``1/sqrt(d)`` multiplies by ``scale`` itself. An exact factorisation ``bias = a @ b^T`` may
        be returned as ``(a, b)`` of ``(B, h, Nq, r)`` and ``(B|1, h|1, Nk, r)``.
        """
        return None

    def lookups(self, q: Tensor, k: Tensor, grid: Grid, scale: float) -> list[Lookup]:
        """Return the logits of ``bias`` unexpanded, if they are rows that pairs pick from.

        A host that finds any uses them instead of ``bias`` and expands them where it is cheapest.
        """
        return []

    def offset_table(self, grid: Grid, device: torch.device) -> Tensor | None:
        """Return the bias of every offset, ``(1|h, 2 H - 1, 2 W - 1)``, if ``bias`` is no more.

        Entry ``[h, dy + H - 1, dx + W - 1]`` is the logit of all pairs of that offset, query minus
        key. Kernels that compute indices read it instead of ``bias``. None where queries and keys
        stand on different grids. ``device`` is that of the tokens.
        """
        return None

    def value(self, v: Tensor, grid: Grid) -> Tensor | None:
        """Return an output ``(B, h, N, d)`` computed on the value map before any windows."""
        return None

    def value_attn(self, attn: Tensor, v: Tensor, grid: Grid) -> Tensor | None:
        """Return an output ``(B, h, Nq, d)`` from the attention matrix ``(B, h, Nq, Nk)``."""
        return None

    def value_lookups(self, grid: Grid) -> list[ValueLookup]:
        """Return the terms of ``value_attn`` unexpanded, if they are rows that pairs pick from.

        An encoding that gives any is asked for these instead of ``value_attn`` where the host
        computes attention piece by piece.
        """
        return []

    def no_decay(self) -> tuple[str, ...]:
        """Names of this encoding's own parameters that take no weight decay."""
        return tuple(name for name, _ in self.named_parameters())

    def transfer(
        self,
        state: dict[str, Tensor],
        prefix: str,
        *,
        mode: ResizeMode = "scale",
        source: dict[str, Size] | None = None,
    ) -> list[Resized]:
        """Bring this encoding's entries of a checkpoint to its own shapes, in place.

        Args:
            state: State dict; entries of this encoding start with ``prefix``.
            prefix: Dotted path of this encoding in ``state``, with the final dot.
            mode: ``scale`` or ``extend``, see :mod:`relpos_mm.encodings.resize`.
            source: Facts about the checkpoint that shapes cannot tell (``window_size``,
                ``grid_size``).

        Raises:
            ValueError: An entry cannot belong here; the message names key, shapes and remedy.
        """
        return []

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        # Every way of loading (init_cfg, load_from, resume, load_state_dict) passes here, at any
        # depth of nesting, so none of them can leave a table of another size at its initial value.
        for record in self.transfer(state_dict, prefix):
            print_log(f"resized on load: {record}", logger="current")
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


def position_modules(model: nn.Module) -> dict[str, PositionEncoding]:
    """Return every encoding in ``model`` under its qualified module name."""
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, PositionEncoding)
    }


def other_shapes(
    module: nn.Module, state: Mapping[str, Tensor], prefix: str
) -> Iterator[tuple[str, Tensor, nn.Parameter]]:
    """Entries of ``state`` whose shape is not that of the parameter they are for.

    Yields:
        Name of the parameter in ``module``, entry (under ``prefix`` + name), parameter.
    """
    for name, own in module.named_parameters():
        table = state.get(prefix + name)
        if table is not None and table.shape != own.shape:
            yield name, table, own
