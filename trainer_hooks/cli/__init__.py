"""The `trainer-hooks` command."""
