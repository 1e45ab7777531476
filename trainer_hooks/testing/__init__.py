"""The author's test kit: does a callback keep the contract of callbacks?

Example::

    from trainer_hooks.testing import check_callback

    def test_the_contract():
        check_callback(MyCallback)

Importing it does not import torch: each name is loaded when it is first used.
"""

from __future__ import annotations

from trainer_hooks._lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
