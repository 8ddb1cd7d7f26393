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

    def as_json(self) -> dict[str, int | list[int]]:
        """The knobs as they stand in the manifest."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    @classmethod
    def parse(cls, settings: list[str]) -> Knobs:
        """Knobs from texts such as `train_scenes=100` or `letter_px=14,30`.

        Raises:
            ValueError: for an unknown name or a value of the wrong form, naming it.
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
