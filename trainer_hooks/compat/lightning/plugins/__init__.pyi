# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit

from . import environments as environments
from . import io as io
from . import precision as precision
