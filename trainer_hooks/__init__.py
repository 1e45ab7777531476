"""trainer_hooks: a PyTorch trainer whose one idea is the hook.

Importing it imports neither torch nor any callback: each name is loaded at its first use.
"""

from __future__ import annotations

from trainer_hooks._lazy import attach_stub
from trainer_hooks._version import old_torch

__getattr__, __dir__, __all__ = attach_stub(__name__)

if _line := old_torch():
    # no error yet, which each name is: pytest and Lightning import the package where it is only
    # installed, and `trainer-hooks doctor` says what else is wrong
    import warnings

    from trainer_hooks.errors import TrainerHooksWarning as _Warning

    warnings.warn(_line, _Warning, stacklevel=2)
