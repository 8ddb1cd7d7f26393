"""Builds mmcv's wheel with compiled ops, once per torch and platform, into the user's cache.

Sources and object files lie in the cache as well until the wheel is done, so an interrupted build
continues with the next file instead of the first.
"""

import glob
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sysconfig
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .progress import CompileProgress, clean_environment, clock, pip_progress, run_logged
from .remedies import StepFailed
from .stamps import locked

# torch 2.14's headers need C++20; mmcv 2.3.6 asks for C++17, for g++ and nvcc alike.
STANDARD = ("-std=c++17", "-std=c++20")
# CFLAGS replaces Python's own flags, -O3 among them: without -O2 the ops would not be optimised.
CFLAGS = "-O2 -g0 -DNDEBUG"


@dataclass(frozen=True)
class Torch:
    """What the installed torch says about itself."""

    version: str
    cuda: str | None
    gpu_archs: tuple[str, ...]


def cache_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Return this project's folder in the user's cache."""
    base = environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "relpos_mm"


def find_nvcc(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the nvcc that torch would use: CUDA_HOME's, the first in PATH, or the usual one."""
    home = environ.get("CUDA_HOME") or environ.get("CUDA_PATH")
    if home is None:
        return shutil.which("nvcc", path=environ.get("PATH")) or shutil.which(
            "nvcc", path="/usr/local/cuda/bin"
        )
    return shutil.which("nvcc", path=os.path.join(home, "bin"))


def wanted_ops(environ: Mapping[str, str] = os.environ) -> str:
    """Return "cuda" where a GPU and nvcc are there, else "cpu"; ``RELPOS_OPS`` overrides.

    Looks for device nodes only: it runs at every ``make`` and must cost nothing.
    """
    chosen = environ.get("RELPOS_OPS") or ("cuda" if environ.get("FORCE_CUDA") == "1" else None)
    if chosen not in (None, "cpu", "cuda"):
        raise StepFailed(f"RELPOS_OPS={chosen}: must be cpu or cuda")
    has_gpu = bool(glob.glob("/dev/nvidia[0-9]*")) or os.path.exists("/dev/dxg")
    return chosen or ("cuda" if has_gpu and find_nvcc(environ) else "cpu")


def cache_key(mmcv: str, torch: str, python_tag: str, ops: str) -> str:
    """Return the name under which a wheel is cached: all that its binary depends on."""
    recipe = hashlib.sha256(repr((STANDARD, CFLAGS)).encode()).hexdigest()[:6]
    system = f"{sysconfig.get_platform()}-{''.join(platform.libc_ver())}".rstrip("-")
    return f"mmcv{mmcv}-torch{torch}-{python_tag}-{system}-{ops}-{recipe}"


def valid_wheel(folder: Path) -> Path | None:
    """Return the wheel in ``folder`` if it is whole and has compiled ops, else None."""
    for path in sorted(folder.glob("*.whl")):
        try:
            with zipfile.ZipFile(path) as wheel:
                whole = wheel.testzip() is None
                compiled = any(re.match(r"mmcv/_ext\.", name) for name in wheel.namelist())
        except (OSError, zipfile.BadZipFile):
            continue
        if whole and compiled:
            return path
    return None


def describe_torch(python: Path) -> Torch:
    """Ask the torch of ``python`` for its version, CUDA version and the visible GPUs."""
    code = (
        "import json, torch; n = torch.cuda.device_count(); print(json.dumps([torch.__version__, "
        "torch.version.cuda, sorted({'%d.%d' % torch.cuda.get_device_capability(i) "
        "for i in range(n)})]))"
    )
    command = [str(python), "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=clean_environment())
    if done.returncode != 0:
        raise StepFailed(
            f"torch cannot be imported: {done.stderr.strip().splitlines()[-1:]}\n"
            "  remedy: make clean, then make again"
        )
    version, cuda, archs = json.loads(done.stdout.splitlines()[-1])
    return Torch(version, cuda, tuple(archs))


def nvcc_release(nvcc: str) -> str:
    """Return nvcc's release, such as "13.0", or "unknown"."""
    try:
        text = subprocess.run([nvcc, "--version"], capture_output=True, text=True).stdout
    except OSError:
        return "unknown"
    found = re.search(r"release (\d+\.\d+)", text)
    return found.group(1) if found else "unknown"


def build_flavour(torch: Torch, ops: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the flavour to build, "cpu" or "cuda<version>-<archs>", and a remark for the user."""
    if ops == "cpu":
        note = "a GPU is there but no nvcc" if torch.gpu_archs else ""
        return "cpu", note
    nvcc = find_nvcc(environ)
    if torch.cuda is None:
        return "cpu", f"torch {torch.version} is a CPU build"
    if nvcc is None:
        return "cpu", "CUDA ops are wanted but there is no nvcc"
    release = nvcc_release(nvcc)
    if release.split(".")[0] != torch.cuda.split(".")[0]:
        return "cpu", f"nvcc {release} does not fit torch's CUDA {torch.cuda}"
    archs = environ.get("TORCH_CUDA_ARCH_LIST") or ";".join(torch.gpu_archs)
    if not archs:
        return "cpu", "no GPU is visible and TORCH_CUDA_ARCH_LIST is not set"
    return f"cuda{release}-sm{re.sub(r'[^0-9a-zA-Z+]+', '_', archs)}", ""


def build_environment(
    flavour: str, torch: Torch, python: Path, site: Path, environ: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of the compile command for ``flavour``."""
    env = dict(environ)
    # The environment is not activated, but ninja is in it.
    path = os.pathsep.join(filter(None, [str(python.parent), env.get("PATH")]))
    env.update(CFLAGS=CFLAGS, MMCV_WITH_OPS="1", PATH=path)
    env.setdefault("MAX_JOBS", str(default_jobs(per_job_gib=1.5 if flavour == "cpu" else 3.0)))
    if flavour == "cpu":
        # With a GPU in sight mmcv's setup.py would ask for nvcc.
        env.update(CUDA_VISIBLE_DEVICES="", FORCE_CUDA="0")
        return env
    env["FORCE_CUDA"] = "1"
    env.setdefault("TORCH_CUDA_ARCH_LIST", ";".join(torch.gpu_archs))
    nvcc = find_nvcc(environ)
    if "CUDA_HOME" not in env and nvcc:
        # A launcher script elsewhere in PATH is not CUDA's home; ask for the real place.
        home = Path(nvcc).resolve().parent.parent
        usual = Path("/usr/local/cuda")
        env["CUDA_HOME"] = str(home if (home / "include/cuda.h").exists() else usual)
    # A toolkit with the compiler alone lacks cublas and friends: torch's own packages bring the
    # headers. CPATH is searched last, so a full toolkit goes first.
    headers = [str(path) for path in sorted(site.glob("nvidia/cu*/include"))]
    env["CPATH"] = os.pathsep.join(filter(None, [env.get("CPATH"), *headers]))
    return env


def default_jobs(per_job_gib: float) -> int:
    """Return how many compilers run at once: one per usable core, if the memory allows."""
    usable = getattr(os, "sched_getaffinity", None)  # not on macOS
    cores = len(usable(0)) if usable else os.cpu_count() or 1
    try:
        memory_gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    except (ValueError, OSError):
        return cores
    return max(1, min(cores, int(memory_gib / per_job_gib)))


def prepare_source(python: Path, requirement: str, folder: Path, log: Path) -> Path:
    """Return mmcv's unpacked source in ``folder``, with the C++ standard that torch needs."""
    source = folder / "source"
    if source.is_dir():
        return source
    partial = folder / "partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    command = [str(python), "-m", "pip", "download", "--no-deps", "--no-build-isolation"]
    command += ["--no-binary", ":all:", "-d", str(partial), requirement]
    run_logged("mmcv", command, log, pip_progress("half a minute"))
    archive = next(partial.glob("*.tar.gz"))
    with tarfile.open(archive) as tar:
        if hasattr(tarfile, "data_filter"):
            tar.extractall(partial, filter="data")
        else:
            tar.extractall(partial)
    unpacked = next(path for path in partial.iterdir() if path.is_dir())
    setup = unpacked / "setup.py"
    setup.write_text(setup.read_text().replace(*STANDARD))
    unpacked.rename(source)  # last: a source folder is always a complete one
    return source


def cached_wheel(python: Path, requirement: str, ops: str, site: Path, log: Path) -> Path:
    """Return mmcv's wheel for the torch of ``python``, from the cache or built now.

    Args:
        python: interpreter of the environment, with torch and the build tools in it.
        requirement: ``onedl-mmcv==VERSION``.
        ops: "cpu" or "cuda", see ``wanted_ops``.
        site: site-packages of the environment.
        log: where the compiler's output goes.

    Raises:
        StepFailed: the build failed, or gave a wheel without compiled ops.
    """
    torch = describe_torch(python)
    flavour, remark = build_flavour(torch, ops, os.environ)
    if remark:
        print(f"      {remark}: mmcv's ops will run on the CPU only", flush=True)
    tag = f"cp{sysconfig.get_config_var('py_version_nodot')}"
    key = cache_key(requirement.split("==")[1], torch.version, tag, flavour)
    home, work = cache_dir() / "wheels" / key, cache_dir() / "build" / key
    wait = "      another set-up is building the same wheel: waiting for it"
    with locked(work.with_name(key + ".lock"), lambda: print(wait, flush=True)):
        found = valid_wheel(home)
        if found:
            print(f"      from the cache: {found}", flush=True)
            return found
        source = prepare_source(python, requirement, work, log)
        env = build_environment(flavour, torch, python, site, clean_environment())
        resumed = sum(1 for _ in source.glob("build/**/*.o"))
        print(
            f"      compiling for {flavour}, {env['MAX_JOBS']} at a time"
            + (f", {resumed} files are there already" if resumed else ""),
            flush=True,
        )
        fresh = work / "wheel"
        shutil.rmtree(fresh, ignore_errors=True)
        command = [str(python), "-m", "pip", "wheel", "-v", "--no-deps", "--no-build-isolation"]
        command += ["-w", str(fresh), str(source)]
        try:
            seconds = run_logged("mmcv", command, log, CompileProgress(), env=env)
        except StepFailed as failure:
            if flavour == "cpu":
                raise
            raise StepFailed(f"{failure}\n  or without CUDA ops: RELPOS_OPS=cpu make") from failure
        if not valid_wheel(fresh):
            shutil.rmtree(work, ignore_errors=True)  # or the next call would meet it again
            raise StepFailed(
                f"Set-up failed in step 'mmcv': the wheel has no compiled ops\n  log:    {log}\n"
                "  remedy: make clean, then make again"
            )
        shutil.rmtree(home, ignore_errors=True)
        home.parent.mkdir(parents=True, exist_ok=True)
        os.replace(fresh, home)
        shutil.rmtree(work, ignore_errors=True)
        print(f"      built in {clock(seconds)}, kept in {home}", flush=True)
    wheel = valid_wheel(home)
    assert wheel is not None, home
    return wheel
