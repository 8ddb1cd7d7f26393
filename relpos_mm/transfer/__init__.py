"""Checkpoints of this project and of other libraries, brought to a config's backbone."""

from relpos_mm.transfer.converting import convert, detect
from relpos_mm.transfer.errors import TransferError
from relpos_mm.transfer.layouts import LAYOUTS
from relpos_mm.transfer.options import Options
from relpos_mm.transfer.report import Report
from relpos_mm.transfer.run import Refused, export_file, transfer_file

__all__ = [
    "LAYOUTS",
    "Options",
    "Refused",
    "Report",
    "TransferError",
    "convert",
    "detect",
    "export_file",
    "transfer_file",
]
