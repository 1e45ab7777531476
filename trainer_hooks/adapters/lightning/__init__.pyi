from .callbacks import adapt as adapt
from .loggers import adapt_logger as adapt_logger
from .modules import adapt_datamodule as adapt_datamodule
from .modules import adapt_module as adapt_module
