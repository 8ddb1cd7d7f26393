"""Keep tables of indices and coordinates that depend on sizes alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

P = ParamSpec("P")
T = TypeVar("T")


def made_once(maxsize: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Cache what a function builds, for the last ``maxsize`` sets of arguments.

    The result must depend on nothing but the arguments. They are the key, so a device belongs among
    them. Under ``torch.compile`` what the function does is part of the graph instead.

    Raises:
        RuntimeError: The first call for these arguments comes from ``torch.export``, whose tensors
            hold no numbers and would stay in the cache.
    """

    def decorate(build: Callable[P, T]) -> Callable[P, T]:
        @lru_cache(maxsize)
        def cached(*args: P.args, **kwargs: P.kwargs) -> T:
            if _exporting():
                raise RuntimeError(
                    "run the model once on an input of this size before exporting it: the first "
                    f"call makes its tables ({build.__name__})"
                )
            # Cached tensors outlive the call, and one made in inference mode could never enter
            # autograd.
            with torch.inference_mode(False):
                return build(*args, **kwargs)

        @wraps(build)
        def lookup(*args: P.args, **kwargs: P.kwargs) -> T:
            if torch.compiler.is_dynamo_compiling():
                return build(*args, **kwargs)
            return cached(*args, **kwargs)  # type: ignore[arg-type]  # hashable, that is all

        lookup.cache_clear, lookup.cache_info = cached.cache_clear, cached.cache_info  # type: ignore
        return lookup

    return decorate


@made_once(maxsize=256)
def constant(values: tuple[Any, ...], dtype: torch.dtype, device: torch.device | str) -> Tensor:
    """Numbers that Python knows, copied to the device once: a copy per call would wait for it."""
    return torch.tensor(values, dtype=dtype, device=device)


def _exporting() -> bool:
    # Torch before 2.7 cannot tell.
    known = getattr(torch.compiler, "is_exporting", None)
    return known is not None and known()
