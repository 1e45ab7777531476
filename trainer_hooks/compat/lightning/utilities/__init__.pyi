# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from . import apply_func as apply_func
from . import cli as cli
from . import cloud_io as cloud_io
from . import combined_loader as combined_loader
from . import data as data
from . import distributed as distributed
from . import enums as enums
from . import exceptions as exceptions
from . import grads as grads
from . import imports as imports
from . import memory as memory
from . import model_helpers as model_helpers
from . import model_summary as model_summary
from . import parameter_tying as parameter_tying
from . import parsing as parsing
from . import rank_zero as rank_zero
from . import seed as seed
from . import signature_utils as signature_utils
from . import types as types
from . import warnings as warnings
from trainer_hooks.compat.lightning.helpers import AttributeDict
from trainer_hooks.compat.lightning.helpers import CombinedLoader
from trainer_hooks.compat.lightning.helpers import GradClipAlgorithmType
from trainer_hooks.compat.lightning.helpers import LightningEnum
from trainer_hooks.compat.lightning.helpers import disable_possible_user_warnings
from trainer_hooks.compat.lightning.helpers import find_shared_parameters
from trainer_hooks.compat.lightning.helpers import grad_norm
from trainer_hooks.compat.lightning.helpers import is_overridden
from trainer_hooks.compat.lightning.helpers import is_picklable
from trainer_hooks.compat.lightning.helpers import measure_flops
from trainer_hooks.compat.lightning.helpers import move_data_to_device
from trainer_hooks.compat.lightning.helpers import rank_zero_deprecation
from trainer_hooks.compat.lightning.helpers import rank_zero_experiment
from trainer_hooks.compat.lightning.helpers import rank_zero_info
from trainer_hooks.compat.lightning.helpers import rank_zero_only
from trainer_hooks.compat.lightning.helpers import rank_zero_warn
from trainer_hooks.compat.lightning.helpers import set_shared_parameters
from trainer_hooks.compat.lightning.helpers import suggested_max_num_workers

__all__ = [
    "AttributeDict",
    "CombinedLoader",
    "GradClipAlgorithmType",
    "LightningEnum",
    "disable_possible_user_warnings",
    "find_shared_parameters",
    "grad_norm",
    "is_overridden",
    "is_picklable",
    "measure_flops",
    "move_data_to_device",
    "rank_zero_deprecation",
    "rank_zero_experiment",
    "rank_zero_info",
    "rank_zero_only",
    "rank_zero_warn",
    "set_shared_parameters",
    "suggested_max_num_workers",
]
