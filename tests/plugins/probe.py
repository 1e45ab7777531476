"""What the fixture `probe` runs: connect callbacks, and write to stderr what came of it."""

from __future__ import annotations

import json
import sys
import warnings

from trainer_hooks.connector.connector import CallbackConnector

options = json.loads(sys.argv[1])
result = {"error": None}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    try:
        connector = CallbackConnector(**options)
    except Exception as error:
        result["error"] = f"{type(error).__name__}: {error}"
        result["cause"] = type(error.__cause__).__name__
    else:
        result["callbacks"] = [type(callback).__qualname__ for callback in connector.callbacks]
        result["records"] = connector.plugin_records()
        result["plugins"] = {
            f"{p.distribution}:{p.name}": [p.status, p.reason, p.group] for p in connector.plugins
        }
result["warnings"] = [[type(w.message).__name__, str(w.message)] for w in caught]
sys.stderr.write(json.dumps(result))
