"""The package's logger under Lightning's name `_logger`, with the handler that shows its records.

Programs format, silence or replace that handler. A Trainer adds it otherwise, so that an import has
no effect; this module is imported only where the name is used.
"""

from __future__ import annotations

from trainer_hooks._log import ensure_visible_log
from trainer_hooks._log import log as _logger

__all__ = ["_logger"]

ensure_visible_log()
