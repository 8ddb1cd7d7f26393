"""The error of this project's tools that is meant for the person at the keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class UserError(Exception):
    """Something the user can repair: the message names what is wrong, where, and the remedy.

    The tools print it without a traceback and end with exit code 2.
    """


@contextmanager
def building(what: str, file: str | None) -> Iterator[None]:
    """Name the config and the part of it whose constructor refuses its arguments.

    Args:
        what: The part, such as ``the model``.
        file: The config's file, where it has one.

    Raises:
        UserError: The part cannot be built.
    """
    try:
        yield
    except (TypeError, ValueError, KeyError, AssertionError) as error:
        said = (error.args and error.args[0]) or type(error).__name__
        raise UserError(f"{file or 'this config'}: {what} cannot be built: {said}") from error
