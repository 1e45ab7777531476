"""The command line: `trainer-hooks`, or `python -m trainer_hooks`."""

from __future__ import annotations

import sys

_INTERRUPTED = 130
"""As `trainer_hooks.cli.commands.INTERRUPTED`, which may not be imported yet."""


def main() -> int:
    """Run the command line and return its exit code; a Ctrl-C in its imports is one line."""
    try:
        from trainer_hooks.cli.main import main as run
    except KeyboardInterrupt:
        # the terminal has written ^C on this line
        print("\ninterrupted", file=sys.stderr)
        return _INTERRUPTED
    return run()


if __name__ == "__main__":
    sys.exit(main())
