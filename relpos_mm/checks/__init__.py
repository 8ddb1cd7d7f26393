"""Checks of config files: everything that mmengine would ignore or find out hours later."""

from .problem import Problem
from .tree import check_tree

__all__ = ["Problem", "check_tree"]
