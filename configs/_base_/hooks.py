"""Hooks that every run of this project carries, whatever library it trains with."""

custom_hooks = [
    dict(type="StartReportHook"),  # data, effective batch, optimiser groups, weights, encoding
    dict(type="NonFiniteLossHook"),  # stops at the first NaN or inf, naming the loss
    dict(type="UnusedParameterHook"),  # names parameters that get no gradient
    dict(type="ChanceHook"),  # hints at labels in another order when a test scores like guessing
    dict(type="ResultHook"),  # writes result.json into the run directory
]
