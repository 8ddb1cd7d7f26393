"""Proxy tasks: what each encoding can represent, told by thought and measured in seconds."""

from . import probe

__all__ = ["probe"]
