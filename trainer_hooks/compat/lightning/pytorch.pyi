# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from trainer_hooks.compat.lightning import *
from trainer_hooks.compat.lightning import __version__ as __version__
