"""Arguments that nothing can have: one sentence with class or argument, and value."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

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
CASES = [
    (name, argument)
    for name, cls in sorted(POSITIONS.module_dict.items())
    if cls.__module__.startswith("relpos_mm.encodings.") and name != "ManhattanBias"
    for argument in inspect.signature(cls).parameters
    if argument in NONSENSE
]


@pytest.mark.parametrize(("name", "argument"), CASES)
def test_nonsense_is_refused_in_one_sentence(name: str, argument: str) -> None:
    for value in NONSENSE[argument]:
        with pytest.raises(ValueError, match=f"{name}|{argument}") as caught:
            build_positions([{"type": name, argument: value}], **PLACE)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [name for name, argument in CASES if argument == "window_size"])
def test_one_number_is_a_square_window(name: str) -> None:
    (encoding,) = build_positions([{"type": name, "window_size": 4}], **PLACE)
    (same,) = build_positions([{"type": name, "window_size": (4, 4)}], **PLACE)
    assert encoding.extra_repr() == same.extra_repr()
