"""What a user may decide about a transfer."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields

from relpos_mm.encodings.resize import ResizeMode
from relpos_mm.transfer.errors import TransferError


@dataclass(frozen=True)
class Options:
    """The choices of one transfer; the defaults refuse whatever is doubtful.

    Attributes:
        mode: ``scale`` interpolates tables, ``extend`` keeps their offsets and repeats the edge.
        grid: (H, W) of the file's absolute embedding, where it is stored flat.
        window: (H, W) of the file's windows, needed where they are not square.
        prefix_tokens: rows of class or register tokens before a flat absolute embedding.
        prefix: prefix of the backbone, where the file has several.
        ema: take averaged weights.
        take_backbone: take the backbone out of a finished detector or segmentor.
        allow_encoding_mismatch: go on with another encoding than the file's.
        keep_final_norm: start a dense model's last output norm from a classifier's final norm.
        keep_head: carry a classifier's head to a classifier.
        fit_tables: fit the config's DynamicBias or LogCoordBias to the file's bias tables.
        split_absolute: turn the file's absolute embedding into the config's absolute-win.
        position_only: of a Swin V2 or Hiera file carry the position parameters, which is all that
            fits.
    """

    mode: ResizeMode = "scale"
    grid: tuple[int, int] | None = None
    window: tuple[int, int] | None = None
    prefix_tokens: int = 0
    prefix: str | None = None
    ema: bool = False
    take_backbone: bool = False
    allow_encoding_mismatch: bool = False
    keep_final_norm: bool = False
    keep_head: bool = False
    fit_tables: bool = False
    split_absolute: bool = False
    position_only: bool = False

    def __post_init__(self) -> None:
        """Refuse numbers that are none of a grid.

        Raises:
            TransferError: A side below 1, or fewer than no prefix tokens.
        """
        for name in ("grid", "window"):
            sides = getattr(self, name)
            if sides is not None and min(sides) < 1:
                raise TransferError(
                    f"--{name} {sides[0]} {sides[1]}: both sides must be at least 1"
                )
        if self.prefix_tokens < 0:
            raise TransferError(f"--prefix-tokens {self.prefix_tokens}: must be 0 or more")

    def refuse_others(self, served: Collection[str], why: str) -> None:
        """Refuse every choice that nothing would read.

        Args:
            served: Names of those that are read.
            why: End of the message.

        Raises:
            TransferError: Another one is not at its default; the message has its flag.
        """
        unused = [
            f"--{field.name.replace('_', '-')}"
            for field in fields(self)
            if field.name not in served and getattr(self, field.name) != field.default
        ]
        if unused:
            raise TransferError(f"{', '.join(unused)}: {why}")
