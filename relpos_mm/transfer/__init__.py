"""Checkpoints of this project and of other libraries, brought to a config's backbone."""

from relpos_mm.transfer.converting import convert, detect
from relpos_mm.transfer.errors import TransferError

__all__ = ["TransferError", "convert", "detect"]
