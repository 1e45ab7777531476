"""trainer_hooks: a PyTorch trainer whose one idea is the hook.

Importing it imports neither torch nor any callback: each name is loaded at its first use.
"""

from __future__ import annotations

from trainer_hooks._lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
