"""Begin the stand-in that the environment names, as a Python process starts."""

import importlib
import os
import sys
from pathlib import Path

_name = os.environ.get("TRAINER_HOOKS_STAND_IN")
if _name:
    _folder = str(Path(__file__).parents[1])
    sys.path.insert(0, _folder)
    importlib.import_module(_name).begin()
    sys.path.remove(_folder)
