"""Lightning's flags for installed packages, and for the system."""

from __future__ import annotations

import platform
import sys
from importlib.util import find_spec

__all__: list[str] = []

_IS_INTERACTIVE = hasattr(sys, "ps1") or bool(sys.flags.interactive)
_IS_WINDOWS = platform.system() == "Windows"
# found without importing them, which takes long
_NUMPY_AVAILABLE = find_spec("numpy") is not None
_OMEGACONF_AVAILABLE = find_spec("omegaconf") is not None
_RICH_AVAILABLE = find_spec("rich") is not None
_TORCHVISION_AVAILABLE = find_spec("torchvision") is not None
