from .callbacks import adapt as adapt
from .callbacks import refuse_algorithm as refuse_algorithm
from .modules import adapt_module as adapt_module
from .modules import losses_of as losses_of
from .modules import mean_of as mean_of
