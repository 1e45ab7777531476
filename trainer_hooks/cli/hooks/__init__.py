"""The command `hooks`: list the hook catalogue, or describe one hook."""
