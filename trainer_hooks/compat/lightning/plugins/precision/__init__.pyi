# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from . import amp as amp
from . import double as double
from . import half as half
from . import precision as precision
from trainer_hooks.compat.lightning.plugin_classes import DoublePrecision
from trainer_hooks.compat.lightning.plugin_classes import HalfPrecision
from trainer_hooks.compat.lightning.plugin_classes import MixedPrecision
from trainer_hooks.compat.lightning.plugin_classes import Precision

__all__ = [
    "DoublePrecision",
    "HalfPrecision",
    "MixedPrecision",
    "Precision",
]
