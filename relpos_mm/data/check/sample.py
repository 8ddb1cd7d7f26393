"""Checks every sample on its way to the model, and names its file when anything goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch.utils.data import Dataset

from relpos_mm.data.check.coco import size_mismatch
from relpos_mm.data.check.finding import errors_of
from relpos_mm.data.check.label_map import IGNORED, form_fault, value_fault
from relpos_mm.data.check.pictures import check_picture
from relpos_mm.engine.errors import UserError

_TAIL = 1 << 16
_CUT = "the file ends too early, so a part of the picture is missing. Replace it by an intact copy."
_ENDS = {b"\xff\xd8": b"\xff\xd9", b"\x89PNG": b"IEND"}  # JPEG, PNG


class BadSample(UserError):
    """A sample that cannot be used; the message names its file, index and the step that failed."""

    def __init__(self, message: str) -> None:
        # A loader's worker hands its whole traceback over as the message: keep the last error.
        super().__init__(message.rpartition(f"{BadSample.__name__}: ")[2].strip())


class CheckedPipeline:
    """A data set's pipeline that checks each sample once its picture and its labels are read.

    Args:
        pipeline: The steps, as built by the data set.
        source: Name of the data set, for messages.
        num_classes: Labels are 0 to this number less one; None when that is not known.
    """

    def __init__(self, pipeline: Any, source: str, num_classes: int | None) -> None:
        self.transforms: list[Callable[[Any], Any]] = list(pipeline.transforms)
        self.source = source
        self.num_classes = num_classes

    def __call__(self, data: dict[str, Any]) -> Any:
        """Runs all steps.

        Raises:
            BadSample: A step failed, or what it read is damaged or out of range.
        """
        path = str(data.get("img_path", "a sample without a file"))
        place = f"{path} (index {data.get('sample_idx', 'unknown')} of {self.source})"
        stated = data.get("width"), data.get("height")
        unread = {"img", "gt_seg_map"} - data.keys()
        result: Any = data
        for step in self.transforms:
            try:
                result = step(result)
                if result is None:
                    return None
                for key in [key for key in unread if isinstance(result, dict) and key in result]:
                    unread.remove(key)
                    self._check(key, result, stated)
            except BadSample:
                raise  # of a pipeline within this one
            except Exception as reason:  # whatever it is, the file must be named
                what = f"{type(reason).__name__}: {reason}".removeprefix("_Refused: ")
                file, label = path, data.get("seg_map_path")
                if label and unread == {"gt_seg_map"} and "Annotations" in type(step).__name__:
                    file, place = str(label), f"{label}, labels of {place}"
                if unread and Path(file).is_file() and is_cut(Path(file)):
                    what = _CUT
                raise BadSample(f"{place}, {type(step).__name__}: {what}") from reason
        return result

    def _check(self, key: str, data: Mapping[str, Any], stated: tuple[Any, Any]) -> None:
        if key == "img":
            _check_picture(Path(data["img_path"]), data["img"], stated)
            self._check_class(data.get("gt_label"))
        else:
            self._check_label_map(data)

    def _check_class(self, label: Any) -> None:
        if self.num_classes is None or label is None:
            return
        bad = [int(one) for one in np.atleast_1d(label) if not 0 <= one < self.num_classes]
        if bad:
            raise _Refused(
                f"class {bad[0]} is out of range; allowed are 0 to {self.num_classes - 1}. "
                "Correct the list of labels, or num_classes and classes of the config."
            )

    def _check_label_map(self, data: Mapping[str, Any]) -> None:
        path, labels = Path(data["seg_map_path"]), data["gt_seg_map"]
        with Image.open(path) as file:  # the header alone
            fault = form_fault(path, file.mode)
        if fault is None and self.num_classes is not None:
            reduced = bool(data.get("reduce_zero_label"))
            values = {int(v) for v in np.flatnonzero(np.bincount(labels.ravel()))}
            # Named as they stand in the file, where classes count from 1 if zero was dropped.
            stored = {v + reduced if v != IGNORED else v for v in values}
            fault = value_fault(path, stored, self.num_classes, reduced)
        if fault is None and labels.shape[:2] != tuple(data["ori_shape"]):
            height, width = data["ori_shape"]
            raise _Refused(
                f"{path}: it is {labels.shape[1]} x {labels.shape[0]} px, its picture "
                f"{width} x {height}. Draw the labels on the picture as it is stored."
            )
        if fault is not None:
            raise _Refused(str(fault))


class _Refused(Exception):
    """What a check says; the pipeline adds file and index."""


def check_samples(dataset: Dataset) -> None:
    """Puts a `CheckedPipeline` into a data set and into all that it wraps or joins."""
    inner = getattr(dataset, "dataset", None)
    for one in [inner] if inner is not None else getattr(dataset, "datasets", []):
        check_samples(one)
    pipeline = getattr(dataset, "pipeline", None)
    if hasattr(pipeline, "transforms") and not isinstance(pipeline, CheckedPipeline):
        names = (getattr(dataset, "metainfo", None) or {}).get("classes")
        count = len(names) if names else None
        dataset.pipeline = _checked(pipeline, _source_name(dataset), count)  # type: ignore[attr-defined]


def _checked(pipeline: Any, source: str, num_classes: int | None) -> CheckedPipeline:
    checked = CheckedPipeline(pipeline, source, num_classes)
    for step in checked.transforms:
        if hasattr(step, "subroutines"):  # test-time augmentation: a pipeline per variant
            step.subroutines = [_checked(p, source, num_classes) for p in step.subroutines]
    return checked


def _source_name(dataset: Any) -> str:
    kind, file = type(dataset).__name__, getattr(dataset, "ann_file", None)
    return f"{kind} {file}" if file else kind


def _check_picture(path: Path, picture: np.ndarray, stated: tuple[Any, Any]) -> None:
    size = picture.shape[1], picture.shape[0]
    if None not in stated and stated != size:
        raise _Refused(str(size_mismatch(path, size, stated)))
    # Some encoders leave the end mark out of a whole picture: the strict decoder decides.
    if is_cut(path) and errors_of(check_picture(path)[1]):
        raise _Refused(_CUT)


def is_cut(path: Path) -> bool:
    """Whether a JPEG or PNG lacks its end mark; OpenCV fills the rest of a cut one silently."""
    with path.open("rb") as file:
        start = file.read(4)
        end = next((end for magic, end in _ENDS.items() if start.startswith(magic)), None)
        if end is None:
            return False
        length = file.seek(0, 2)
        file.seek(max(0, length - _TAIL))
        if end in file.read():
            return False
        file.seek(0)
        return end not in file.read()
