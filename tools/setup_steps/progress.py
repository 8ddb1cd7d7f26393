"""Runs one command of the set-up: output into a log, progress with an estimate on the screen."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from .remedies import StepFailed, failure_message

_TTY_PERIOD_S = 0.5
_PLAIN_PERIOD_S = 30.0


def clock(seconds: float) -> str:
    """Return ``seconds`` as minutes and seconds: 75 -> '1:15'."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


class CompileProgress:
    """Files done, files in all and the time left, from ninja's ``[12/78]``.

    The estimate starts at the first counter: what comes before it says nothing about compiling.
    """

    def __init__(self) -> None:
        self.first: tuple[int, float] | None = None

    def __call__(self, log: str, elapsed_s: float) -> str:
        """Return the line to show for the output ``log`` after ``elapsed_s`` seconds."""
        counters = re.findall(r"^\s*\[(\d+)/(\d+)\] ", log, flags=re.MULTILINE)
        if not counters:
            return "preparing"
        done, total = (int(number) for number in counters[-1])
        self.first = self.first or (done, elapsed_s)
        line = f"{done} of {total} files compiled"
        if done == self.first[0]:
            return line
        left_s = (elapsed_s - self.first[1]) / (done - self.first[0]) * (total - done)
        return f"{line}, about {clock(left_s)} left"


def count_packages(installing: "re.Match[str]") -> str:
    """Return "Installing 40 packages" for pip's list of their names."""
    return f"{installing[1]} {installing[2].count(',') + 1} packages"


def pip_progress(usual: str) -> Callable[[str, float], str]:
    """Return a progress function: what pip is doing, and how long the step takes as a rule."""

    def describe(log: str, elapsed_s: float) -> str:
        doing = re.findall(
            r"^\s*((?:Collecting|Downloading|Building|Installing) .*)$", log, flags=re.MULTILINE
        )
        now = re.sub(r"\S*/", "", doing[-1]) if doing else "starting"
        now = re.sub(r"^(Installing) collected packages: (.*)", count_packages, now)[:60].strip()
        return f"{now} (usually {usual} in all)"

    return describe


def clean_environment() -> dict[str, str]:
    """Return the environment for pip and python without what would lead them to other packages."""
    leaks = ("PYTHONPATH", "PYTHONHOME", "PIP_USER", "PIP_TARGET", "PIP_PREFIX")
    env = {key: os.environ[key] for key in os.environ if key not in leaks}
    env.update(PYTHONNOUSERSITE="1", PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_NO_INPUT="1")
    return env


class Screen:
    """One line that is rewritten on a terminal; a line every half minute elsewhere."""

    def __init__(self) -> None:
        self.tty = sys.stdout.isatty()
        self.end = "" if self.tty else "\n"
        self.shown_s = 0.0

    def update(self, describe: Callable[[], str], elapsed_s: float) -> None:
        """Show ``describe()`` when its time has come."""
        if elapsed_s - self.shown_s < (_TTY_PERIOD_S if self.tty else _PLAIN_PERIOD_S):
            return
        self.shown_s = elapsed_s
        line = f"      {clock(elapsed_s)}  {describe()}"
        print(f"\r\033[K{line[:110]}" if self.tty else line, end=self.end, flush=True)

    def close(self) -> None:
        """Remove the rewritten line."""
        if self.tty:
            print("\r\033[K", end="", flush=True)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """End the command and what it started; compilers would otherwise run on after Ctrl-C."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run_logged(
    step: str,
    command: Sequence[str],
    log_path: Path,
    progress: Callable[[str, float], str],
    env: dict[str, str] | None = None,
) -> float:
    """Run ``command`` with its output in ``log_path`` (appended); return the seconds it took.

    Without ``env`` it runs in ``clean_environment()``.

    Raises:
        StepFailed: the command ended with another status than 0.
    """
    log_path.parent.mkdir(parents=True, exist_ok=True)
    screen, start = Screen(), time.monotonic()
    with open(log_path, "ab") as log:
        offset = log.tell()
        log.write(f"$ {' '.join(command)}\n".encode())
        log.flush()

        def output() -> str:
            with open(log_path, "rb") as written:
                written.seek(offset)
                return written.read().decode(errors="replace")

        try:
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=env or clean_environment(),
                start_new_session=True,
            )
        except OSError as error:
            raise StepFailed(failure_message(step, str(log_path), str(error), 127)) from error
        try:
            while process.poll() is None:
                elapsed = time.monotonic() - start
                screen.update(lambda: progress(output(), elapsed), elapsed)  # noqa: B023
                time.sleep(0.1)
        except BaseException:
            _stop(process)
            raise
        finally:
            screen.close()
    if process.returncode != 0:
        message = failure_message(step, str(log_path), output(), process.returncode)
        raise StepFailed(message)
    return time.monotonic() - start
