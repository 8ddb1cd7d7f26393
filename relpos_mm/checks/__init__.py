"""Checks of config files: everything that mmengine would ignore or find out hours later."""

from .keys import check_options
from .problem import Problem
from .tree import check_tree

__all__ = ["Problem", "check_options", "check_tree"]
