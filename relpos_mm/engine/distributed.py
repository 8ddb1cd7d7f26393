"""Several processes: what mmengine takes for granted (GPUs, a shared folder), done without."""

from __future__ import annotations

import os
import subprocess
from collections.abc import MutableMapping
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


def prepare_processes(cfg: Config) -> None:
    """Prepare a config for several processes; join them over gloo when there is no GPU.

    Does nothing in a single process. Where a GPU is, mmengine joins the processes.
    """
    launcher = cfg.get("launcher", "none")
    if launcher == "none":
        return
    if launcher == "slurm":
        _set_slurm_variables()
    for part in ("val", "test"):
        collect_over_the_group(cfg.get(f"{part}_evaluator"))
    if torch.cuda.is_available() or launcher == "mpi":
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


def collect_over_the_group(evaluator: Any) -> None:
    """Let every metric of an evaluator's config send its results through the process group.

    mmengine's default is a temporary folder, which processes of other machines do not see.
    """
    metrics = evaluator if isinstance(evaluator, (list, tuple)) else [evaluator]
    for metric in metrics:
        if not isinstance(metric, MutableMapping):
            continue
        if "metrics" in metric:
            collect_over_the_group(metric["metrics"])
        else:
            metric["collect_device"] = "gpu"  # mmengine's name for the group, over gloo as well


def _set_slurm_variables() -> None:
    """Set torch's variables from Slurm's, with a port of the job's own."""
    environ = os.environ
    job = int(environ.get("SLURM_JOB_ID", "0"))
    environ.setdefault("MASTER_PORT", str(20000 + job % 20000))
    if "MASTER_ADDR" not in environ:
        command = ["scontrol", "show", "hostname", environ["SLURM_NODELIST"]]
        hosts = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        environ["MASTER_ADDR"] = hosts[0]
    for name, slurm in (
        ("RANK", "PROCID"),
        ("WORLD_SIZE", "NTASKS"),
        ("LOCAL_RANK", "LOCALID"),
    ):
        environ[name] = environ[f"SLURM_{slurm}"]
