"""Check every form of the models on a CUDA device, time them against mmdet, write one json."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import relpos_mm  # noqa: F401  registers encodings and models
from relpos_mm.analysis import device_checks as checks
from relpos_mm.engine.cli import run_tool
from relpos_mm.engine.errors import UserError

HALVES = (torch.bfloat16, torch.float16)
GOLD = Path(__file__).resolve().parents[1] / "tests" / "data" / "files" / "swin"


def main() -> None:
    args = parse()
    if args.device == "cuda" and not torch.cuda.is_available():
        raise UserError("torch sees no CUDA device here; --device cpu --quick tests the script")
    device, started = torch.device(args.device), time.perf_counter()
    # The exact paths first: TF32 would hide a wrong one behind its rounding.
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    results: dict[str, Any] = {}
    for name, check in jobs(device, args.quick):
        begun = time.perf_counter()
        if begun - started > args.budget:
            results[name] = {"left_out": f"the budget of {args.budget:g} s was used up"}
            continue
        try:
            results[name] = check()
        except Exception as error:  # one failure must not cost the other answers of a lent device
            results[name] = {"failed": f"{type(error).__name__}: {error}"}
        results[name]["seconds"] = round(time.perf_counter() - begun, 2)
        print(f"{name}: {json.dumps(results[name])}", file=sys.stderr, flush=True)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    record = {**machine(device), "quick": args.quick, "checks": results}
    args.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"written: {args.out}")
    wrong = [name for name, facts in results.items() if "failed" in facts]
    if wrong:
        raise UserError(f"{len(wrong)} of {len(results)} checks failed: {', '.join(wrong)}")


def jobs(device: torch.device, quick: bool) -> list[tuple[str, Callable[[], dict[str, Any]]]]:
    """Checks by name, those that decide whether the others mean anything first."""
    dtypes = (torch.float32, torch.bfloat16) if quick else (*HALVES, torch.float32)
    kinds = checks.KINDS[:1] if quick else checks.KINDS
    sizes = ("1x60x92",) if quick else ("2x224x224", "64x224x224", "2x800x1333")
    rounds = 1 if quick else 20
    found: list[tuple[str, Callable[[], dict[str, Any]]]] = [
        ("gold", lambda: checks.gold(device, GOLD))
    ]
    for dtype in dtypes:
        for kind in kinds:
            label = f"forms {kind} {str(dtype).removeprefix('torch.')}"
            found.append((label, lambda d=dtype, k=kind: checks.forms(device, d, k)))  # type: ignore[misc]
    synced = checks.KINDS[:2] if quick else tuple(checks.CATALOGUE)
    found.append(("no_sync", lambda: checks.no_sync(device, synced)))
    half = torch.bfloat16
    for size in sizes:
        found.append((f"speed {size}", lambda s=size: checks.speed(device, half, s, rounds, quick)))  # type: ignore[misc]
    found.append(("compile", lambda: checks.compiled(device, half, sizes[0], rounds, quick)))
    return found


def machine(device: torch.device) -> dict[str, Any]:
    """What the numbers were made on."""
    name = torch.cuda.get_device_name() if device.type == "cuda" else platform.machine()
    return {"device": name, "torch": torch.__version__, "cuda": torch.version.cuda}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--quick", action="store_true", help="tiny models: tests the script alone")
    parser.add_argument("--budget", type=float, default=330, help="start no check after so many s")
    parser.add_argument("--out", type=Path, default=Path("work_dirs/gpu_check.json"))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(run_tool(main))
