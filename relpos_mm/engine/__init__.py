"""What this project adds to mmengine's training: optimiser groups, reports, guards, results."""

from . import compat  # before any config is read
from .chance import ChanceHook
from .curve import CurveHook
from .distributed import CpuDistributedDataParallel
from .errors import UserError
from .loading import LoadingShareHook
from .nonfinite import NonFiniteLossHook
from .optim import PositionOptimConstructor
from .precision import Bfloat16OptimWrapper
from .repeat import IterationSeedHook, NumberedSampler, SeededDataset
from .result import ResultHook
from .resuming import OwedValidationHook, ResumedRateHook
from .saving import SafeCheckpointHook
from .start_report import StartReportHook
from .unused import UnusedParameterHook

__all__ = [
    "Bfloat16OptimWrapper",
    "ChanceHook",
    "CpuDistributedDataParallel",
    "CurveHook",
    "IterationSeedHook",
    "LoadingShareHook",
    "NonFiniteLossHook",
    "NumberedSampler",
    "OwedValidationHook",
    "PositionOptimConstructor",
    "ResultHook",
    "ResumedRateHook",
    "SafeCheckpointHook",
    "SeededDataset",
    "StartReportHook",
    "UnusedParameterHook",
    "UserError",
    "compat",
]
