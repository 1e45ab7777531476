from .callbacks import adapt as adapt
