"""What a check reports: one sentence that names file, key, value and remedy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Problem:
    """One reason why a config is refused.

    Attributes:
        file: The config file.
        key: Dotted path of the key in it, such as ``model.roi_head.bbox_head.0.num_classes``.
        value: What stands there.
        reason: What is wrong with it.
        remedy: What to write instead.
    """

    file: Path
    key: str
    value: object
    reason: str
    remedy: str

    def __str__(self) -> str:
        shown = repr(self.value)
        if len(shown) > 160:
            shown = shown[:157] + "..."
        return f"{self.file}: {self.key} = {shown}: {self.reason}. {self.remedy}."
