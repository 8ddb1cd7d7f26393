"""relpos_mm: pluggable position encodings for dense prediction on OpenMMLab.

Importing the package registers everything it offers in mmengine's root registries, so a config
needs ``custom_imports = dict(imports=["relpos_mm"])`` and nothing else.
"""

from . import encodings, engine, models
from .environment import warn_if_no_ops

__version__ = "0.1.0"

__all__ = ["encodings", "engine", "models"]

warn_if_no_ops()
