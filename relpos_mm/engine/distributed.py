"""Several processes on a machine without GPU: what mmengine takes for granted, done for CPU."""

from __future__ import annotations

import os
from typing import Any

import torch
from mmengine.config import Config
from mmengine.logging import print_log
from mmengine.model import MMDistributedDataParallel, revert_sync_batchnorm
from mmengine.registry import MODEL_WRAPPERS
from torch import distributed, nn


@MODEL_WRAPPERS.register_module()
class CpuDistributedDataParallel(MMDistributedDataParallel):
    """mmengine's DDP for CPU tensors; SyncBN, which needs GPUs, becomes BN with the same keys."""

    def __init__(self, module: nn.Module, **kwargs: Any) -> None:
        synced = sum("SyncBatchNorm" in type(m).__name__ for m in module.modules())
        if synced:
            print_log(
                f"CPU: {synced} SyncBN layers run as BN, with statistics of one process each",
                logger="current",
            )
        kwargs["device_ids"] = None
        super().__init__(revert_sync_batchnorm(module), **kwargs)

    def train(self, mode: bool = True) -> CpuDistributedDataParallel:
        """Set the mode; before an evaluation all processes take the first one's statistics.

        The first process saves the checkpoint, so a later test sees what was validated here.
        """
        if self.training and not mode:
            for buffer in self.module.buffers():
                distributed.broadcast(buffer, src=0)
        return super().train(mode)


def prepare_cpu_processes(cfg: Config) -> None:
    """Join the process group over gloo and choose the CPU wrapper, when there is no GPU.

    Does nothing in a single process or where a GPU is: mmengine handles both.
    """
    if cfg.get("launcher", "none") != "pytorch" or torch.cuda.is_available():
        return
    if not distributed.is_initialized():
        distributed.init_process_group(backend="gloo")
    cfg.model_wrapper_cfg = {
        "broadcast_buffers": False,
        "find_unused_parameters": cfg.get("find_unused_parameters", False),
        **(cfg.get("model_wrapper_cfg") or {}),
        "type": "CpuDistributedDataParallel",
    }
    if distributed.get_rank() == 0:
        print_log(f"No GPU: {os.environ['WORLD_SIZE']} processes on CPU, connected by gloo")
