"""What this project adds to mmengine's training: optimiser groups, reports, guards, results."""

from . import compat  # before any config is read
from .chance import ChanceHook
from .distributed import CpuDistributedDataParallel
from .errors import UserError
from .nonfinite import NonFiniteLossHook
from .optim import PositionOptimConstructor
from .precision import Bfloat16OptimWrapper
from .result import ResultHook
from .saving import SafeCheckpointHook
from .start_report import StartReportHook
from .unused import UnusedParameterHook

__all__ = [
    "Bfloat16OptimWrapper",
    "ChanceHook",
    "CpuDistributedDataParallel",
    "NonFiniteLossHook",
    "PositionOptimConstructor",
    "ResultHook",
    "SafeCheckpointHook",
    "StartReportHook",
    "UnusedParameterHook",
    "UserError",
    "compat",
]
