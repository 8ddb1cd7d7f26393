"""Arguments that nothing can have: one sentence with class or argument, and value."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import pytest

from relpos_mm.encodings import PositionEncoding
from relpos_mm.registry import POSITIONS, build_positions

PLACE = {
    "embed_dims": 24,
    "num_heads": 3,
    "window_size": (4, 5),
    "grid_size": (6, 7),
    "layer": 1,
    "depth": 4,
}
COUNT = (0, -4, "24", 24.5, None)
SIZE = (0, (7,), (0, 3), "7", (2.5, 3))
NUMBER = (0, -1, "x", float("nan"), None)
WORD = ("nonsense", 3)
NONSENSE: dict[str, tuple[Any, ...]] = {
    "embed_dims": COUNT,
    "num_heads": COUNT,
    "kernel_size": COUNT,
    "window_size": SIZE,
    "grid_size": (*SIZE, None),
    "global_size": (*SIZE, None),
    "ref_size": SIZE,
    "pretrained_window_size": (-1, (0, 5), (8,), "8"),
    "prefix_tokens": (-1, 1.5),
    "pos_dims": (0, -4, 6, 1.5),
    "hidden": (0, -3, "nonsense", 1.5),
    "bucket_size": (0, 3, -2),
    "max_distance": (0, 1, -5),
    "clip": (-1, 1.5, "3", (1, 2, 3), None),
    "skip": (-1, 1.5, "1"),
    "layer": (-1, 4, None),
    "undirected": (-1, 9, 1.5),
    "theta": NUMBER,
    "temperature": NUMBER,
    "scale": NUMBER,
    "slope": NUMBER,
    "ratio": (*NUMBER, 0.4),
    "rpe_on": ("", "kk", "kx", "K", None),
    **dict.fromkeys(
        ("mode", "mapping", "form", "split", "directions", "normalize_coords", "axis_order"), WORD
    ),
    **dict.fromkeys(("pairing", "semantics", "index", "init", "p2c_offset", "site"), WORD),
}
CLASSES = [
    (name, cls)
    for name, cls in sorted(POSITIONS.module_dict.items())
    if cls.__module__.startswith("relpos_mm.encodings.") and name != "ManhattanBias"
]
CASES = [
    (name, argument)
    for name, cls in CLASSES
    for argument in inspect.signature(cls).parameters
    if argument in NONSENSE
]
FLAGS = [
    (cls, argument)
    for _, cls in CLASSES
    for argument, parameter in inspect.signature(cls).parameters.items()
    if "bool" in parameter.annotation
]


@pytest.mark.parametrize(("name", "argument"), CASES)
def test_nonsense_is_refused_in_one_sentence(name: str, argument: str) -> None:
    # Without the host's own, which would be named instead of what is wrong with the value.
    place = {key: value for key, value in PLACE.items() if key != argument}
    for value in NONSENSE[argument]:
        with pytest.raises(ValueError, match=f"{name}|{argument}") as caught:
            build_positions([{"type": name, argument: value}], **place)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("cls", "argument"), FLAGS)
def test_flags_are_true_or_false(cls: type[PositionEncoding], argument: str) -> None:
    signature = inspect.signature(cls)
    place = {key: PLACE[key] for key in PLACE.keys() & signature.parameters.keys()}
    for value in ("False", "no", 0, 1, None):
        if value is None and signature.parameters[argument].default is None:
            continue
        message = f"^{cls.__name__}: {argument} must be True.* False.*, got {value!r}$"
        with pytest.raises(ValueError, match=message):
            cls(**place, **{argument: value})


def test_every_flag_of_an_encoding_written_elsewhere_is_checked() -> None:
    class Elsewhere(PositionEncoding):
        slug = "elsewhere"

        def __init__(self, *, sharp: bool = True, wide: bool | None = None) -> None:
            super().__init__()
            self.sharp, self.wide = sharp, wide

    with pytest.raises(ValueError, match=r"^Elsewhere: wide must be True, False or None, got 'x'$"):
        Elsewhere(wide="x")
    assert copy.deepcopy(Elsewhere(sharp=False)).sharp is False


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("Sinusoid2d", {"form": "detr", "split_axes": True}, "split_axes=True has no effect"),
        ("Sinusoid2d", {"scale": 1.0}, r"scale=1\.0 has no effect"),
        ("Sinusoid2d", {"form": "detr", "normalize": False, "scale": 3}, "scale=3 has no effect"),
        ("Disentangled", {"p2c": False, "p2c_offset": "paper"}, "p2c_offset='paper' has no effect"),
        ("AbsoluteTable", {"prefix_tokens": -1}, "a whole number of at least 0, got -1"),
        ("ContextualRpe", {"ratio": 1e6}, r"ratio=1000000\.0 .* more than 1,048,576 buckets"),
        ("ContextualRpe", {"ratio": 1e308, "mapping": "euc"}, "more than 1,048,576 buckets"),
    ],
)
def test_options_without_effect_or_sense_are_refused(
    name: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^{name}: .*{message}"):
        build_positions([{"type": name, **options}], **PLACE)


@pytest.mark.parametrize(
    "options", [{"scale": 1.0, "normalize": True}, {"scale": 1.0, "form": "detr"}]
)
def test_the_scale_of_normalised_positions_is_used(options: dict[str, Any]) -> None:
    (encoding,) = build_positions([{"type": "Sinusoid2d", **options}], **PLACE)
    assert encoding.scale == 1.0


@pytest.mark.parametrize("name", [name for name, argument in CASES if argument == "window_size"])
def test_one_number_is_a_square_window(name: str) -> None:
    (encoding,) = build_positions([{"type": name, "window_size": 4}], **PLACE)
    (same,) = build_positions([{"type": name, "window_size": (4, 4)}], **PLACE)
    assert encoding.extra_repr() == same.extra_repr()
