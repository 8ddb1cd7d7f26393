"""The one exception of this package."""

from __future__ import annotations


class TransferError(ValueError):
    """A checkpoint cannot be used as asked; the message names key, value and remedy."""
