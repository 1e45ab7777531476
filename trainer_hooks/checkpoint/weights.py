"""Load saved weights into a module, list misfits, and remove keys from a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.nn.parameter import is_lazy

from trainer_hooks._log import log, warn
from trainer_hooks._text import first_few
from trainer_hooks.errors import CheckpointError, OptionError, TrainerHooksWarning
from trainer_hooks.runtime.parameter_names import with_names_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import nn

_SHOWN = 8


def load_weights(
    module: nn.Module, state_dict: Mapping[str, Any], source: str, *, strict: bool = True
) -> None:
    """Load `state_dict` into `module`; nothing is changed if it does not fit.

    If not strict, a warning lists the missing and unexpected names that the module's
    `load_state_dict` returns. It is a log line for a module with `strict_loading = False`, as long
    as any name matches.

    Args:
        module: the module.
        state_dict: the saved weights.
        source: the file that they come from, for messages.
        strict: whether every name must be on both sides.

    Raises:
        CheckpointError: names or shapes differ; the message lists them.
    """
    state_dict = with_names_of(module.state_dict(), state_dict)
    require_fitting(module, state_dict, source, strict=strict)
    result = module.load_state_dict(state_dict, strict=strict)
    if strict:
        return
    # not the names of both sides: a module's own method may rename them, or return nothing
    missing = list(getattr(result, "missing_keys", ()))
    unexpected = list(getattr(result, "unexpected_keys", ()))
    differences = "; ".join(_differing_names(missing, unexpected))
    if not differences:
        return
    has_match = bool(module.state_dict().keys() - set(missing))
    how_much = "in part" if has_match else "not at all, as no name matches"
    message = (
        f"the weights in {source!r} were loaded into {type(module).__qualname__} {how_much}: "
        f"{differences}. Missing ones keep the values that they had. If they were saved under "
        "other names, rename them in on_load_checkpoint."
    )
    # a class with `strict_loading = False` leaves weights out on purpose
    if has_match and not getattr(module, "strict_loading", True):
        log.info("%s", message)
    else:
        warn(message, TrainerHooksWarning)


def require_fitting(
    module: nn.Module, state_dict: Mapping[str, Any], source: str, *, strict: bool = True
) -> None:
    """Raise unless `state_dict` can be loaded into `module`.

    Args:
        module: the module.
        state_dict: the saved weights.
        source: the file that they come from, for messages.
        strict: whether every name must be on both sides.

    Raises:
        CheckpointError: names or shapes differ; the message lists them.
    """
    # not load_state_dict's own errors: it has copied some weights by the time it raises
    present = module.state_dict()
    state_dict = with_names_of(present, state_dict)
    shapes = [
        f"{name} (saved {tuple(saved.shape)}, here {tuple(present[name].shape)})"
        for name, saved in state_dict.items()
        if isinstance(saved, Tensor)
        and isinstance(present.get(name), Tensor)
        and not is_lazy(present[name])  # it takes the size of the saved one
        and saved.shape != present[name].shape
    ]
    problems = []
    if strict:
        missing = [name for name in present if name not in state_dict]
        unexpected = [name for name in state_dict if name not in present]
        problems = _differing_names(missing, unexpected)
    # also if not strict: torch refuses a tensor of another shape in any case
    problems += _listed("of another shape", shapes)
    if problems:
        way_out = (
            "; for other layers there, replace them after load_from_checkpoint"
            if shapes
            else ", or load what fits with load_from_checkpoint(..., strict=False)"
        )
        raise CheckpointError(
            f"the weights in {source!r} do not fit {type(module).__qualname__}: "
            f"{'; '.join(problems)}. Build the module with the arguments it was "
            f"saved with{way_out}."
        )


def _differing_names(missing: list[str], unexpected: list[str]) -> list[str]:
    """Return a text for the names that only the module has, and one for those only in the file."""
    # torch's words, which a search finds
    return [
        *_listed("Missing key(s) in state_dict", missing),
        *_listed("Unexpected key(s) in state_dict", unexpected),
    ]


def _listed(kind: str, names: list[str]) -> list[str]:
    """Return one text with the first names, or none without a name."""
    return [f"{kind}: {first_few(names, _SHOWN)}"] if names else []


IgnoreKeys = list[str] | tuple[str, ...] | Callable[[dict[str, Any]], object]
"""Patterns of keys such as `"state_dict/head.*"`, or a function that changes the checkpoint."""


def check_ignore_keys(value: object, where: str) -> IgnoreKeys | None:
    """Return `value` if it is None, a function, or a list of key patterns.

    Raises:
        OptionError: it is something else.
    """
    if value is None or callable(value):
        return value
    if isinstance(value, list | tuple) and all(isinstance(item, str) and item for item in value):
        return value
    raise OptionError(
        f"ignore_keys {value!r} of {where}: it must be a list of patterns of keys, or a function "
        "that is given the checkpoint and changes it. Pass such as ['state_dict/head.*']."
    )


def remove_keys(checkpoint: dict[str, Any], keys: IgnoreKeys) -> list[str]:
    """Remove the parts of a checkpoint that `keys` match.

    The keys of nested dicts are joined by `/`: `"optimizer_states"` is a whole part,
    `"state_dict/head.weight"` one weight. `*` and `?` match as in file names.

    Args:
        checkpoint: a dict of dicts, which is changed.
        keys: patterns, or a function that changes the checkpoint itself.

    Returns:
        The patterns that matched nothing.
    """
    if callable(keys):
        keys(checkpoint)
        return []
    used: set[str] = set()
    for owner, key, path in list(_paths(checkpoint)):  # a list: the dicts are changed meanwhile
        # not fnmatch, which ignores case on some systems
        matching = [pattern for pattern in keys if fnmatchcase(path, pattern)]
        if matching:
            used.update(matching)
            owner.pop(key, None)
    return [pattern for pattern in keys if pattern not in used]


def _paths(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[dict[str, Any], str, str]]:
    """Yield each dict, a key in it and the key's path; a dict comes before its items."""
    for key, value in tree.items():
        path = f"{prefix}{key}"
        yield tree, key, path
        if isinstance(value, dict):
            yield from _paths(value, f"{path}/")
