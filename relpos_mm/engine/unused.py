"""Name the parameters that training does not reach."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from .errors import UserError
from .facts import bare_model


@HOOKS.register_module()
class UnusedParameterHook(Hook):
    """Warn once about trainable parameters that got no gradient in the first iterations.

    With several processes and ``find_unused_parameters=False`` the second iteration would end in
    an error that gives numbers instead of names, so there the first iteration decides.

    Args:
        iterations: Iterations to watch; a detector may see no object of some kind in one batch.

    Raises:
        UserError: In a run of several processes as described.
    """

    def __init__(self, iterations: int = 3) -> None:
        self.iterations = iterations
        self._waiting: set[str] = set()
        self._handles: list[Any] = []
        self._seen = 0

    def before_train(self, runner: Runner) -> None:
        model = bare_model(runner.model)
        trainable = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self._waiting = set(trainable)
        self._count = len(trainable)
        # Gradients are gone when hooks run after the iteration, so each one reports its arrival.
        self._handles = [p.register_hook(self._arrival(name)) for name, p in trainable.items()]
        self._strict = (
            isinstance(runner.model, DistributedDataParallel)
            and not runner.model.find_unused_parameters
        )

    def after_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: Any = None
    ) -> None:
        if not self._handles:
            return
        self._seen += 1
        if self._waiting and not self._strict and self._seen < self.iterations:
            return
        for handle in self._handles:
            handle.remove()
        self._handles = []
        if not self._waiting:
            return
        named = ", ".join(sorted(self._waiting)[:10])
        message = (
            f"{len(self._waiting)} of {self._count} trainable parameters got no gradient in the "
            f"first {self._seen} iteration(s) and do not learn: {named}"
        )
        if self._strict:
            raise UserError(
                f"{message}. Processes cannot average what is not there: take the parts out of the "
                "model (out_indices, auxiliary heads), or set find_unused_parameters=True."
            )
        runner.logger.warning(message)

    def _arrival(self, name: str) -> Callable[[Tensor], None]:
        def note(grad: Tensor) -> None:
            self._waiting.discard(name)

        return note
