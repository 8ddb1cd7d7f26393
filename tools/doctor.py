"""Print the versions in use and what is wrong with them; exit status 1 when something is.

Run this first when an import fails: every finding comes with the command that repairs it.
"""

import argparse
import importlib.util
import platform
import subprocess
import sys
from pathlib import Path

# By path, not `from relpos_mm import ...`: the doctor is called when just that import fails.
_PATH = Path(__file__).resolve().parents[1] / "relpos_mm" / "environment.py"
_SPEC = importlib.util.spec_from_file_location("relpos_mm_environment", _PATH)
environment = importlib.util.module_from_spec(_SPEC)
sys.modules[_SPEC.name] = environment
_SPEC.loader.exec_module(environment)

SUPPORTED, ORIGINALS = environment.SUPPORTED, environment.ORIGINALS
Finding, installed_version = environment.Finding, environment.installed_version

OTHERS = ("relpos-mm", "numpy", "scipy", "opencv-python", "pycocotools", "setuptools")
LIBRARIES = ("torchvision", "mmengine", "mmcv", "mmdet", "mmseg", "mmpretrain", "relpos_mm")


def import_failures() -> list:
    """Import each library in a process of its own; return those that fail and why."""
    findings = []
    for name in LIBRARIES:
        done = subprocess.run(
            [sys.executable, "-c", f"import {name}"], capture_output=True, text=True
        )
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
            remedy = (
                "make setup, or reinstall what the message names: it was built for other versions"
            )
            findings.append(Finding("error", f"import {name} fails: {reason}", remedy))
    return findings


def ops_findings() -> list:
    """Load mmcv's ops and compare what they were compiled for with the GPUs of this machine."""
    try:
        environment.require_ops()
    except ImportError as error:
        what, _, remedy = str(error).partition("\n  remedy: ")
        return [Finding("error", what, remedy)]
    import torch
    from mmcv.ops import get_compiling_cuda_version

    compiled_for = get_compiling_cuda_version()
    gpus = torch.cuda.device_count()
    print(f"  {'GPUs':<24}{gpus} (torch's CUDA {torch.version.cuda}, mmcv's {compiled_for})")
    if gpus and compiled_for == "not available":
        what = "there is a GPU, but mmcv's ops were compiled for the CPU only"
        remedy = "install the CUDA toolkit that torch was built with (nvcc), then make clean setup"
        return [Finding("error", what, remedy)]
    return []


def main() -> int:
    """Print versions and findings; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="look at metadata only, import nothing"
    )
    arguments = parser.parse_args()

    print(f"  {'python':<24}{platform.python_version()} ({platform.platform()})")
    for name in (*SUPPORTED, *OTHERS):
        window = f"  supported: {SUPPORTED[name]}" if name in SUPPORTED else ""
        print(f"  {name:<24}{installed_version(name) or '-':<16}{window}")
    for name in (original for group in ORIGINALS.values() for original in group):
        if installed_version(name):
            print(f"  {name:<24}{installed_version(name)}")

    findings = environment.check_environment()
    if not arguments.quick and not findings:
        findings = import_failures() or ops_findings()
    for finding in findings:
        print(finding)
    errors = sum(finding.level == "error" for finding in findings)
    print(f"{errors} errors, {len(findings) - errors} notes")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
