#!/usr/bin/env python3
"""Make `.venv/` with everything that this project needs; `make` calls this before every target.

Standard library only. Steps that are done are skipped, an interrupted set-up continues, and a
failed step ends in one message. Environment: MAX_JOBS (compilers at once), RELPOS_OPS=cpu|cuda
(mmcv's ops), XDG_CACHE_HOME (where the mmcv wheel is kept); pip's own settings apply.
"""
# This file must be readable by any Python 3: an old one finds a newer one from here.

import os
import shutil
import signal
import sys

SUPPORTED = ((3, 11), (3, 12), (3, 10))  # in the order of preference
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")


def choose_python(running, in_venv, which):
    """Return None when the running interpreter will do, else the path of the one to use.

    Args:
        running: (major, minor) of this interpreter.
        in_venv: (major, minor) of an existing environment, or None. It is kept when supported: a
            `python3` that changes between two calls must not throw a working environment away.
        which: finds a command in PATH.

    Raises:
        SystemExit: no supported Python is there.
    """
    wanted = [in_venv] if in_venv in SUPPORTED else []
    wanted += [running] if running in SUPPORTED else []
    wanted += list(SUPPORTED)
    for version in wanted:
        if version == running:
            return None
        path = which("python{}.{}".format(*version))
        if path:
            return path
    raise SystemExit(
        "Set-up needs Python 3.10, 3.11 or 3.12; `python3` is {}.{} and neither of python3.11, "
        "python3.12 and python3.10 is in PATH.\n"
        "  remedy: install one of them (Debian, Ubuntu: apt-get install python3 python3-venv "
        "python3-dev), or name it: make PYTHON=/path/to/python3.11".format(*running)
    )


def main():
    """Run the set-up; return the exit status."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    version = None
    config = os.path.join(VENV, "pyvenv.cfg")
    if os.path.exists(config) and os.path.exists(os.path.join(VENV, "bin", "python")):
        with open(config) as lines:
            found = [line.split("=")[1].strip() for line in lines if line.startswith("version")]
        version = tuple(int(part) for part in found[0].split(".")[:2]) if found else None
    other = choose_python(tuple(sys.version_info[:2]), version, shutil.which)
    if other:
        os.execv(other, [other, *sys.argv])

    from pathlib import Path

    from setup_steps.plan import steps_for
    from setup_steps.remedies import StepFailed
    from setup_steps.stamps import locked, run_steps

    # A polite kill or a closed terminal ends as Ctrl-C does: the running command is stopped.
    for polite in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(polite, signal.default_int_handler)
    wait = "Another set-up of this checkout is running: waiting for it."
    try:
        with locked(Path(VENV + ".lock"), lambda: print(wait, flush=True)):
            steps = steps_for(Path(ROOT), Path(VENV))
            ran = run_steps(steps, Path(VENV) / "stamps.json", lambda line: print(line, flush=True))
    except StepFailed as failure:
        print(failure, file=sys.stderr)
        return 1
    except OSError as error:
        print("Set-up cannot use a file or folder:", error, file=sys.stderr)
        remedy = "make it writable, or let XDG_CACHE_HOME name another place for the cached wheel"
        print("  remedy:", remedy, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nSet-up interrupted. Run make again: it continues here.", file=sys.stderr)
        return 130
    if ran:
        print("Set-up complete.", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
