"""Published numbers that a report sets beside its own, with the protocol of each.

Swin-T in Table 4 of the Swin Transformer paper (arXiv 2103.14030), one seed per cell. COCO: Cascade
Mask R-CNN, 3x, single scale. ADE20K: the row "relative only" equals the multi-scale entry of the
paper's Table 3 (the release lists 44.51 single scale and 45.81 multi-scale with flip); the paper
does not state the protocol of the other rows.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """One column of a published table.

    Attributes:
        task: Our name of the task.
        metric: Our name of the metric.
        title: The paper's name of the column.
        protocol: How it was tested.
        values: By variant.
        prefer: What the name of our protocol beside it has in it, where there are several.
    """

    task: str
    metric: str
    title: str
    protocol: str
    values: dict[str, float]
    prefer: str = ""


_ROWS = ("noenc", "absonly", "absrel", "relonly")
_COCO = "COCO val2017, Cascade Mask R-CNN 3x, single scale"

PAPERS = {
    "swin_table4": (
        "Swin Transformer, Table 4 (arXiv 2103.14030), one seed per cell",
        (
            Column(
                "classification",
                "top1_pct",
                "ImageNet top-1",
                "ImageNet-1k val, 224 px, single crop",
                dict(zip(_ROWS, (80.1, 80.5, 81.3, 81.3), strict=True)),
            ),
            Column(
                "detection",
                "box_ap",
                "COCO box AP",
                _COCO,
                dict(zip(_ROWS, (49.2, 49.0, 50.2, 50.5), strict=True)),
            ),
            Column(
                "detection",
                "mask_ap",
                "COCO mask AP",
                _COCO,
                dict(zip(_ROWS, (42.6, 42.4, 43.4, 43.7), strict=True)),
            ),
            Column(
                "segmentation",
                "miou_pct",
                "ADE20K mIoU",
                "ADE20K val, UperNet 160k, multi-scale (not stated per row)",
                dict(zip(_ROWS, (43.8, 43.2, 44.0, 46.1), strict=True)),
                prefer="multi-scale",
            ),
        ),
    )
}
