"""mmdet's Cascade R-CNN that tells its backbone the real sizes of padded pictures.

Importing this module imports mmdet; configs that use it name it in ``custom_imports``.
"""

from __future__ import annotations

from typing import Any

from mmdet.models.detectors import CascadeRCNN
from mmengine.registry import MODELS
from torch import Tensor


class TellsPictures:
    """Mixin for mmdet's detectors around :class:`~relpos_mm.models.swin.RelPosSwin`.

    mmdet hands pictures alone to a backbone, so one cannot know where a smaller picture of a batch
    ends. Encodings that count from the picture's own border need that; segmentation trains on
    crops of one size and tests pictures one by one, so only detectors have a mixin.
    """

    _pictures: list[tuple[int, int]] | None = None

    def forward(self, inputs: Tensor, data_samples: Any = None, mode: str = "tensor") -> Any:
        """As mmdet's, with the sizes of ``data_samples`` (``img_shape``) at hand."""
        if data_samples is not None:
            self._pictures = [tuple(sample.img_shape[:2]) for sample in data_samples]
        try:
            return super().forward(inputs, data_samples, mode)  # type: ignore[misc]
        finally:
            self._pictures = None

    def extract_feat(self, batch_inputs: Tensor) -> tuple[Tensor, ...]:
        """Maps of backbone and neck."""
        maps = self.backbone(batch_inputs, pictures=self._pictures)  # type: ignore[attr-defined]
        return self.neck(maps) if self.with_neck else maps  # type: ignore[attr-defined]


@MODELS.register_module()
class RelPosCascadeRCNN(TellsPictures, CascadeRCNN):
    """Cascade R-CNN whose backbone knows the valid region of every picture.

    With ``backbone.mask_padding=True`` the maps of a picture do not depend on its batch mates,
    wherever the encoding allows it.
    """
