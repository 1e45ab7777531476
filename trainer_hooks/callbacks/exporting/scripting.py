"""Modules as TorchScript: compiled where torch can, traced where it cannot."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks._log import warn
from trainer_hooks.errors import ExportError, TrainerHooksWarning, described, message_of
from trainer_hooks.module import Module, without_run

if TYPE_CHECKING:
    from torch import nn

    from trainer_hooks.callbacks.exporting.call import Call

__all__ = ["to_torchscript"]

_LINES = 6


def to_torchscript(module: nn.Module, call: Call) -> Any:
    """Return a module as TorchScript that takes a call's arguments.

    It is scripted, which keeps what depends on the data. Where that does not go it is traced with
    the call.

    Raises:
        ExportError: neither goes.
    """
    with without_run(module, Module):
        try:
            scripted: Any = torch.jit.script(module)
            call.of_module(scripted)
            return scripted
        except Exception as error:  # noqa: BLE001 - torch raises many kinds of what it cannot do
            why_not = error
        try:
            return _traced(module, call)
        except Exception as error:
            raise ExportError(
                f"scripting: {_short(why_not)}\ntracing: {described(error)}"
            ) from error


def _traced(module: nn.Module, call: Call) -> Any:
    """Trace a module; torch takes positions or keywords, not both."""
    ordered = call.in_order(module)
    if not ordered.kwargs:
        given: dict[str, Any] = {"example_inputs": ordered.args}
    elif not call.args:
        given = {"example_kwarg_inputs": dict(call.kwargs)}
    else:
        raise ExportError("positions and keywords together cannot be traced; name all of them")
    trace: Any = torch.jit.trace
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", torch.jit.TracerWarning)  # type: ignore[attr-defined]
        traced = trace(module, **given, strict=False, check_trace=False)
    if told:
        warn(
            f"{type(module).__qualname__} was traced for TorchScript, which fixes what depends on "
            f"the data as it was for the sample: {told[0].message} Write forward so that it can "
            "be scripted if that matters.",
            TrainerHooksWarning,
        )
    return traced


def _short(error: Exception) -> str:
    """Return the first lines of what torch says; it shows the code of all that it looked at."""
    lines = [line for line in message_of(error).splitlines() if line.strip()]
    more = ["..."] if len(lines) > _LINES else []
    return "\n".join(
        [f"{type(error).__name__}: {lines[0] if lines else ''}", *lines[1:_LINES], *more]
    )
