"""What all tests share: one thread, no screen, no network, and where the files are."""

import os

# Before torch is imported anywhere, and for every process that a test starts.
os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", MPLBACKEND="Agg")

import logging
import socket
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from mmengine.config import utils as config_utils

from tests.quiet import stretched_tables_are_meant  # noqa: F401

ROOT = Path(__file__).resolve().parents[1]


def pytest_configure() -> None:
    """Use one thread per test process: pytest-xdist brings the parallelism."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def no_network() -> Iterator[None]:
    """Refuse connections to other machines, so that nothing can come to depend on a download."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        host = address[0] if isinstance(address, tuple) else ""  # a string is a local socket
        if host and host not in ("127.0.0.1", "::1", "localhost"):
            raise OSError(f"tests may not use the network: connection to {host} refused")
        connect(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded)
        yield


@pytest.fixture(autouse=True, scope="session")
def metafiles_are_read_once() -> Iterator[None]:
    """Remember a library's 80 metafiles, which mmengine reads anew for each base config in it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(config_utils, "load", cache(config_utils.load))
        yield


@pytest.fixture(autouse=True)
def open_log_streams() -> None:
    """Give mmengine's loggers an open stream: one made in a test keeps that test's captured one.

    Log files that an earlier test has closed are taken away; mmengine writes to them unasked.
    """
    made = getattr(sys.modules.get("mmengine.logging.logger"), "MMLogger", None)
    for logger in made._instance_dict.values() if made else ():
        for handler in list(logger.handlers):
            stream = getattr(handler, "stream", None)
            if isinstance(handler, logging.FileHandler) and stream is None:
                logger.removeHandler(handler)
            elif isinstance(handler, logging.StreamHandler) and getattr(stream, "closed", False):
                handler.stream = sys.__stdout__  # setStream would flush the closed one


@pytest.fixture(autouse=True)
def no_visualizer_of_another_test() -> None:
    """Forget mmengine's visualizers, which it keeps by the run's name with the second in it.

    The next run of that second would get one that writes into a folder which is gone by now.
    """
    kinds = [getattr(sys.modules.get("mmengine.visualization"), "Visualizer", None)]
    for kind in filter(None, kinds):
        kind._instance_dict.clear()
        kinds += kind.__subclasses__()


@pytest.fixture(scope="session")
def repo_root() -> Path:
    """Return the root of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def golden_dir() -> Path:
    """Return the folder of reference vectors; tests that need it skip where it is absent."""
    path = ROOT.parent / "shared" / "golden"
    if not path.is_dir():
        pytest.skip(f"reference vectors are not part of the repository and not in {path}")
    return path
