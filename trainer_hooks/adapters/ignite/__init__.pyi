from .handlers import IgniteAdapter as IgniteAdapter
from .handlers import adapt as adapt
from .handlers import attach as attach
