"""Random pictures with random labels, in the form in which data sets hand them to a model."""

from __future__ import annotations

from typing import Any

import torch

# What a training sees: COCO's usual size after resizing, and ADE20K's crop.
DETECTION, SEGMENTATION = (800, 1333), (512, 512)
_OBJECTS = 8  # COCO has 7.7 in a picture (arXiv 1405.0312, section 5)


def synthetic_batch(scope: str) -> dict[str, list[Any]]:
    """A picture with labels for mmdet (80 classes, boxes and masks), two for mmseg (150 classes).

    A segmentor's pooled pixel alone has no variance to normalise with.

    Raises:
        ValueError: Another library.
    """
    if scope == "mmdet":
        from mmdet.testing import demo_mm_inputs

        return demo_mm_inputs(
            1, [(3, *DETECTION)], num_items=[_OBJECTS], num_classes=80, with_mask=True
        )
    if scope != "mmseg":
        raise ValueError(f"synthetic_batch: no synthetic pictures for {scope!r}")
    from mmengine.structures import PixelData
    from mmseg.structures import SegDataSample

    samples = [SegDataSample(metainfo={"img_shape": SEGMENTATION}) for _ in range(2)]
    for sample in samples:
        sample.gt_sem_seg = PixelData(data=torch.randint(150, (1, *SEGMENTATION)))
    pictures = [torch.randint(256, (3, *SEGMENTATION), dtype=torch.uint8) for _ in samples]
    return {"inputs": pictures, "data_samples": samples}
