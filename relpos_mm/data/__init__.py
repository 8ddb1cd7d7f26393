"""Data: the embedded set `bdpq`, small trees in the layouts of the real sets, and checks."""

from relpos_mm.data.guard import MissingData, require_data
from relpos_mm.data.hashing import data_hash
from relpos_mm.data.metrics import ClassGroups

__all__ = ["ClassGroups", "MissingData", "data_hash", "require_data"]
