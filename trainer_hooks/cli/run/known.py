"""Import what a config may name in a word: what is here, and what installed plugins supply."""

from __future__ import annotations

from trainer_hooks import callbacks, loggers
from trainer_hooks._log import log
from trainer_hooks.hooks import GROUPS, PluginFilter, imported, installed, is_request

__all__ = ["import_known"]


def import_known() -> None:
    """Import the callbacks and loggers of this package and of the plugins.

    The parser finds a class by its short name among those that are imported. A plugin that is
    broken is left out here: the Trainer says what is wrong with it.
    """
    for room in (callbacks, loggers):
        for name in room.__all__:
            getattr(room, name)
    wanted = PluginFilter.of(True)
    if wanted.takes_none:
        return
    for plugin in installed():
        if plugin.group not in GROUPS or plugin.status != "found" or wanted.objection(plugin):
            continue
        try:
            imported(plugin)
        except BaseException as error:
            if is_request(error):
                raise
            log.debug("plugin %s cannot be imported", plugin.label, exc_info=error)
