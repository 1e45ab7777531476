# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from . import apply_func as apply_func
from . import cloud_io as cloud_io
from . import data as data
from . import distributed as distributed
from . import enums as enums
from . import exceptions as exceptions
from . import imports as imports
from . import rank_zero as rank_zero
from . import seed as seed
from . import spike as spike
from . import throughput as throughput
from . import types as types
from . import warnings as warnings
from trainer_hooks.compat.lightning.helpers import AttributeDict
from trainer_hooks.compat.lightning.helpers import LightningEnum
from trainer_hooks.compat.lightning.helpers import disable_possible_user_warnings
from trainer_hooks.compat.lightning.helpers import measure_flops
from trainer_hooks.compat.lightning.helpers import move_data_to_device
from trainer_hooks.compat.lightning.helpers import rank_zero_deprecation
from trainer_hooks.compat.lightning.helpers import rank_zero_info
from trainer_hooks.compat.lightning.helpers import rank_zero_only
from trainer_hooks.compat.lightning.helpers import rank_zero_warn
from trainer_hooks.compat.lightning.helpers import suggested_max_num_workers

__all__ = [
    "AttributeDict",
    "LightningEnum",
    "disable_possible_user_warnings",
    "measure_flops",
    "move_data_to_device",
    "rank_zero_deprecation",
    "rank_zero_info",
    "rank_zero_only",
    "rank_zero_warn",
    "suggested_max_num_workers",
]
