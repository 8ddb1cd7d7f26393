"""Keep tables of indices and coordinates that depend on sizes alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
T = TypeVar("T")


def made_once(maxsize: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Cache what a function builds, for the last ``maxsize`` sets of arguments.

    The result must depend on nothing but the arguments. They are the key, so a device belongs among
    them.

    Raises:
        RuntimeError: The first call for these arguments comes from ``torch.export``, whose tensors
            hold no numbers and would stay in the cache.
    """

    def decorate(build: Callable[P, T]) -> Callable[P, T]:
        @lru_cache(maxsize)
        @wraps(build)
        def made(*args: P.args, **kwargs: P.kwargs) -> T:
            if not torch.compiler.is_dynamo_compiling() and _exporting():
                raise RuntimeError(
                    "run the model once on an input of this size before exporting it: the first "
                    f"call makes its tables ({build.__name__})"
                )
            # Cached tensors outlive the call, and one made in inference mode could never enter
            # autograd.
            with torch.inference_mode(False):
                return build(*args, **kwargs)

        return made  # type: ignore[return-value]  # its arguments are hashable, that is all

    return decorate


def _exporting() -> bool:
    # Torch before 2.7 cannot tell.
    known = getattr(torch.compiler, "is_exporting", None)
    return known is not None and known()
