"""Which form of attention calls take that do not name one."""

from __future__ import annotations

from typing import Literal, get_args

Impl = Literal["auto", "eager", "fused", "flex"]
IMPLS: tuple[str, ...] = get_args(Impl)

_current: Impl = "auto"


def check_impl(impl: str) -> None:
    """Raise ``ValueError`` for a form that does not exist."""
    if impl not in IMPLS:
        known = ", ".join(repr(one) for one in IMPLS)
        raise ValueError(f"attend: impl must be one of {known}, got {impl!r}")


def current_impl() -> Impl:
    """Form of calls that name none."""
    return _current


class use_impl:
    """Let all attention take one form, from now on or inside a ``with`` statement.

    Args:
        impl: ``auto``, ``eager``, ``fused`` or ``flex``, see :func:`relpos_mm.models.attend`.

    Raises:
        ValueError: An unknown form.
    """

    def __init__(self, impl: Impl) -> None:
        global _current
        check_impl(impl)
        self.before, _current = _current, impl

    def __enter__(self) -> None:
        """Nothing to do: the form is in use since the call."""

    def __exit__(self, *error: object) -> None:
        global _current
        _current = self.before
