"""From a failed command's log to the one thing to do about it."""

import re
from typing import NamedTuple


class StepFailed(Exception):
    """A step of the set-up failed; the text is complete for the person at the keyboard."""


class Remedy(NamedTuple):
    """What a pattern in a log means and what to do."""

    cause: str
    action: str


# The first match wins, so causes stand before their consequences: a full disk also breaks the
# compiler, and a killed compiler also fails the build.
_PATTERNS: list[tuple[str, Remedy]] = [
    (
        r"No space left on device|Disk quota exceeded|\[Errno 28\]|\[Errno 122\]",
        Remedy(
            "the disk is full",
            "free about 8 GB here and in the cache folder (a CUDA build of torch takes 6 GB), or "
            "set XDG_CACHE_HOME, TMPDIR or PIP_CACHE_DIR to a larger disk",
        ),
    ),
    (
        r"Killed signal terminated program|internal compiler error: Killed|fatal error: Killed"
        r"|signal 9\b|virtual memory exhausted|out of memory allocating|^Killed$",
        Remedy("the compiler ran out of memory", "use fewer jobs: MAX_JOBS=1 make"),
    ),
    (
        r"ensurepip is not available|No module named '?ensurepip|No module named '?venv",
        Remedy(
            "this Python has no venv module",
            "install it (Debian, Ubuntu: apt-get install python3-venv), then run make again",
        ),
    ),
    (
        r"fatal error: '?Python\.h'?",
        Remedy(
            "the headers of Python are missing",
            "install them (Debian, Ubuntu: apt-get install python3-dev), then run make again",
        ),
    ),
    (
        r"(g\+\+|gcc|c\+\+|cc|clang\+\+|clang)['\"]?: (command )?not found"
        r"|No such file or directory: '(g\+\+|gcc|c\+\+|cc|x86_64-linux-gnu-g\+\+)'"
        r"|command '.*(gcc|g\+\+|clang)' failed: No such file",
        Remedy(
            "there is no C++ compiler",
            "install one (Debian, Ubuntu: apt-get install g++), then run make again",
        ),
    ),
    (
        r"unrecognized command[- ]line option .-std=c\+\+20|invalid value 'c\+\+20'",
        Remedy(
            "the C++ compiler is too old for C++20",
            "install g++ 10 or newer and name it: CC=gcc-12 CXX=g++-12 make",
        ),
    ),
    (
        r"detected CUDA version .* mismatches|unsupported GNU version|nvcc (fatal|error)",
        Remedy(
            "nvcc does not fit torch or the C++ compiler",
            "install the CUDA toolkit that torch was built with, or build without it: "
            "RELPOS_OPS=cpu make",
        ),
    ),
    (
        r"Temporary failure in name resolution|Name or service not known|NewConnectionError"
        r"|Failed to establish a new connection|ConnectTimeout|Network is unreachable"
        r"|Read timed out|ConnectionResetError|IncompleteRead|ProxyError|nodename nor servname",
        Remedy(
            "the package index cannot be reached",
            "check the network (pip's own settings for proxies and mirrors are used), then run "
            "make again: it continues here",
        ),
    ),
    (
        r"CERTIFICATE_VERIFY_FAILED",
        Remedy("the package index shows an unknown certificate", "set PIP_CERT to your CA file"),
    ),
    (
        r"No matching distribution found for (\S+)|user requested \(constraint\)",
        Remedy(
            "the package index has no such version for this Python and platform",
            "compare `pip config list` and any constraint file with requirements.txt, or use "
            "Python 3.11 on 64-bit Linux, where the set was tested",
        ),
    ),
    (
        r"THESE PACKAGES DO NOT MATCH THE HASHES|BadZipFile|zipfile is corrupted",
        Remedy("a downloaded file is damaged", "run `pip cache purge`, then make again"),
    ),
    (
        r"Permission denied|\[Errno 13\]",
        Remedy(
            "a file or folder may not be written",
            "see the log for its name; was make run as another user before?",
        ),
    ),
]


def diagnose(log: str) -> Remedy:
    """Return cause and remedy for a failed command from its output ``log``."""
    for pattern, remedy in _PATTERNS:
        if re.search(pattern, log, flags=re.MULTILINE):
            return remedy
    return Remedy(
        "unknown: the end of the log says more",
        "run make again (finished steps are kept), or make clean for a new start",
    )


def failure_message(step: str, log_path: str, log: str, returncode: int) -> str:
    """Return the one message of a failed step: which, why, what to do, where the log is."""
    killed = returncode in (-9, 137)
    remedy = diagnose(log + "\nKilled" if killed else log)
    tail = [line for line in log.splitlines() if line.strip()][-3:]
    return "\n".join(
        [
            f"Set-up failed in step '{step}' (exit status {returncode}).",
            f"  cause:  {remedy.cause}",
            f"  remedy: {remedy.action}",
            f"  log:    {log_path}",
            *(f"          | {line[:160]}" for line in tail),
        ]
    )
