"""`python -m trainer_hooks`: the command line."""

from __future__ import annotations

import sys

from trainer_hooks.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
