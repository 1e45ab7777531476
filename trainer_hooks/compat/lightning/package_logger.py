"""This package's logger under Lightning's name for its own, `_logger`, with a handler.

Lightning adds a handler to its logger as it is imported, and programs format or remove that
handler. Our logger has none until a Trainer is made, so that `import trainer_hooks` changes no
logging. The import of this module adds the handler at once; it happens when a program first asks
for `_logger`.
"""

from __future__ import annotations

from trainer_hooks._log import ensure_visible_log
from trainer_hooks._log import log as _logger

__all__ = ["_logger"]

ensure_visible_log()
