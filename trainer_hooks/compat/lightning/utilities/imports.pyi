# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.compat.lightning.package_flags import _IS_INTERACTIVE as _IS_INTERACTIVE
from trainer_hooks.compat.lightning.package_flags import _IS_WINDOWS as _IS_WINDOWS
from trainer_hooks.compat.lightning.package_flags import _NUMPY_AVAILABLE as _NUMPY_AVAILABLE
from trainer_hooks.compat.lightning.package_flags import _OMEGACONF_AVAILABLE as _OMEGACONF_AVAILABLE
from trainer_hooks.compat.lightning.package_flags import _RICH_AVAILABLE as _RICH_AVAILABLE
from trainer_hooks.compat.lightning.package_flags import _TORCHVISION_AVAILABLE as _TORCHVISION_AVAILABLE

__all__ = [
]
