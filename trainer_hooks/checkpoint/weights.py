"""Put saved weights into a module, and say exactly what does not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from trainer_hooks.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn

__all__ = ["load_weights", "require_fitting"]

_SHOWN = 8


def load_weights(
    module: nn.Module, state_dict: Mapping[str, Any], source: str, *, strict: bool = True
) -> None:
    """Load `state_dict` into `module`; nothing is changed if it does not fit.

    Args:
        module: the module.
        state_dict: the saved weights.
        source: where they come from, for messages.
        strict: whether every name must be on both sides.

    Raises:
        CheckpointError: names or shapes differ; the message lists them.
    """
    require_fitting(module, state_dict, source, strict=strict)
    module.load_state_dict(state_dict, strict=strict)


def require_fitting(
    module: nn.Module, state_dict: Mapping[str, Any], source: str, *, strict: bool = True
) -> None:
    """Make sure that `state_dict` can be loaded into `module`; the arguments are `load_weights`'s.

    Raises:
        CheckpointError: names or shapes differ; the message lists them.
    """
    own = module.state_dict()
    missing = [name for name in own if name not in state_dict]
    unexpected = [name for name in state_dict if name not in own]
    shapes = [
        f"{name} (saved {tuple(saved.shape)}, here {tuple(own[name].shape)})"
        for name, saved in state_dict.items()
        if isinstance(saved, Tensor)
        and isinstance(own.get(name), Tensor)
        and saved.shape != own[name].shape
    ]
    problems = []
    if strict:
        problems += [_listed("missing", missing), _listed("unexpected", unexpected)]
    problems.append(_listed("of another shape", shapes))
    if any(problems):
        way_out = ", or load what fits with load_from_checkpoint(..., strict=False)"
        raise CheckpointError(
            f"the weights in {source!r} do not fit {type(module).__qualname__}: "
            f"{'; '.join(filter(None, problems))}. Build the module with the arguments it was "
            f"saved with{'' if shapes else way_out}."
        )


def _listed(kind: str, names: list[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{kind}: {', '.join(names[:_SHOWN])}{more}"
