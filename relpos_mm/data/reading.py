"""How every loader takes a picture: on the grid it is stored on, 8 bits, three channels.

One rule for training, test and inference:

- EXIF orientation is ignored. COCO's boxes and masks, ADE20K's label files and most labelling tools
  use the stored grid; a reader that turns the picture alone would rotate it against its labels.
- Grey is repeated, 16 bits keep their upper 8, CMYK and palettes become RGB, transparency is
  dropped (the stored colour counts), an animation gives its first frame: as OpenCV's decoder does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from mmengine.config import Config

_RAW = {"color": "color_ignore_orientation", "grayscale": "grayscale_ignore_orientation"}
_TURNING = ("cv2", "pillow")  # mmcv's other decoders never turn a picture
_PLACES = ("train_dataloader", "val_dataloader", "test_dataloader", "tta_pipeline")


def read_raw_grid(cfg: Config) -> int:
    """Lets every `LoadImageFromFile` of a config's pipelines ignore EXIF orientation.

    Returns:
        How many readers were changed.
    """
    changed = 0
    for place in _PLACES:
        for step in _readers(cfg.get(place)):
            kind = step.get("color_type", "color")
            if kind in _RAW and step.get("imdecode_backend", "cv2") in _TURNING:
                step["color_type"] = _RAW[kind]
                changed += 1
    return changed


def _readers(node: Any) -> Iterator[MutableMapping[str, Any]]:
    if isinstance(node, MutableMapping):
        if str(node.get("type", "")).rpartition(".")[2] == "LoadImageFromFile":
            yield node
        for value in node.values():
            yield from _readers(value)
    elif isinstance(node, (list, tuple)) and not isinstance(node, Mapping):
        for value in node:
            yield from _readers(value)
