"""Every number that shapes the embedded data set, in one place."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

#: Raised whenever the same seed and knobs would give other bytes. Results name it.
GENERATOR_VERSION = 1

CHIRAL = ("b", "d", "p", "q")
PLAIN = ("o", "x", "s", "t")
#: Things, in the order of class ids; also the classes of the classification task.
LETTERS = CHIRAL + PLAIN
TEXTURES = ("brick", "grass", "gravel")
LAYOUT = ("weave-above", "weave-below")
#: Segmentation classes in the order of label values.
SEG_CLASSES = TEXTURES + LAYOUT + LETTERS

Range = tuple[int, int]

#: Least and most of the knobs that have more to keep than not being below zero.
LIMITS: dict[str, tuple[int, int | None]] = {
    **dict.fromkeys(("cls_train", "cls_val", "train_scenes", "val_scenes"), (1, None)),
    # A picture needs a row of weave above and one below; letters are drawn from one pixel on.
    **dict.fromkeys(("cls_px", "scene_px", "large_px"), (2, None)),
    **dict.fromkeys(("cls_letter_px", "letter_px"), (1, None)),
    **dict.fromkeys(("zoom_pct", "home_pct", "shifted_pct"), (1, 100)),
    **dict.fromkeys(("slant_pct", "layout_pct"), (0, 100)),
    **dict.fromkeys(("contrast", "noise"), (0, 255)),
    "zoom_pct": (1, None),
}


@dataclass(frozen=True)
class Knobs:
    """Sizes, counts and difficulty. Pixels where a name ends in `_px`, whole percents for `_pct`.

    Ranges include both ends. The defaults were calibrated, see docs/calibration.md; a study
    changes one knob at a time.
    """

    cls_px: int = 48
    cls_train: int = 12000
    cls_val: int = 1000
    #: Spread of the one centred letter of a classification picture.
    centre_sigma_px: int = 4
    cls_letter_px: Range = (20, 44)
    cls_clutter: Range = (0, 1)

    scene_px: int = 128
    large_px: int = 192
    train_scenes: int = 1600
    val_scenes: int = 200
    letters: Range = (2, 4)
    #: Height of the tallest letters of a face; `o x s` are about two thirds of it.
    letter_px: Range = (22, 46)
    #: How much `val_zoom` enlarges the letters.
    zoom_pct: int = 150
    #: Letters of every split but `val_shift` lie in this left part of the scene ...
    home_pct: int = 60
    #: ... and those of `val_shift` in this right part.
    shifted_pct: int = 45

    #: Added to the ground where ink is, of 255. Always brighter: both signs are not learnt in
    #: minutes. Wide on purpose: strong letters are learnt first and carry the weak ones along.
    contrast: Range = (70, 190)
    #: Contrast of the grounds against that of the photographs.
    ground_pct: int = 60
    #: Growth of every stroke on each side, so that masks are wider than a feature-map cell.
    bold_px: int = 1
    #: Horizontal shear of a letter, up to this share of its height, either way.
    slant_pct: int = 12
    #: Cut-off pieces of letters, which are no things.
    clutter: Range = (0, 2)
    noise: int = 8
    #: Strength lambda of layout: the row decides between the two weave labels in
    #: (100 + lambda) / 2 per cent of regions.
    layout_pct: int = 0

    def __post_init__(self) -> None:
        for name, value in self.as_json().items():
            low, high = value if isinstance(value, list) else (value, value)
            least, most = LIMITS.get(name, (0, None))
            if low < least or (most is not None and high > most):
                form = f"from {least} to {most}" if most is not None else f"at least {least}"
                raise ValueError(f"{name}={_text(value)}: {name} must be {form}")
        self._refuse_lost_letters()

    def _refuse_lost_letters(self) -> None:
        """Refuse splits in which no letter, drawn at its smallest, finds room."""
        least, size = self.letter_px[0], self.scene_px
        for name, room, letter in (
            ("home_pct", size * self.home_pct // 100, least),
            ("shifted_pct", size * self.shifted_pct // 100, least),
            ("zoom_pct", size * self.home_pct // 100, max(least * self.zoom_pct // 100, 1)),
            ("large_px", self.large_px * self.home_pct // 100, least),
        ):
            if letter > room:
                raise ValueError(
                    f"{name}={getattr(self, name)}: letters of {letter} pixels and more have only "
                    f"{room} of {size} pixels; change {name}, letter_px or scene_px"
                )

    def as_json(self) -> dict[str, int | list[int]]:
        """The knobs as they stand in the manifest."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    @classmethod
    def parse(cls, settings: list[str]) -> Knobs:
        """Knobs from texts such as `train_scenes=100` or `letter_px=14,30`.

        Raises:
            ValueError: for an unknown name or a value of the wrong form or size, naming it.
        """
        defaults = {f.name: f.default for f in fields(cls)}
        chosen: dict[str, int | Range] = {}
        for setting in settings:
            name, _, text = setting.partition("=")
            if name not in defaults:
                raise ValueError(f"unknown knob {name!r}; the knobs are {', '.join(defaults)}")
            try:
                numbers = tuple(int(part) for part in text.split(","))
            except ValueError:
                raise ValueError(f"{setting!r}: whole numbers are needed") from None
            wanted = 2 if isinstance(defaults[name], tuple) else 1
            if len(numbers) != wanted or list(numbers) != sorted(numbers) or numbers[0] < 0:
                form = "LOW,HIGH" if wanted == 2 else "one number"
                raise ValueError(f"{setting!r}: {name} takes {form}, not below zero")
            chosen[name] = (numbers[0], numbers[1]) if wanted == 2 else numbers[0]
        return cls(**chosen)  # type: ignore[arg-type]


def _text(value: int | list[int]) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
