"""The command `checkpoint`: show, verify, compare, export and prune checkpoint files."""
