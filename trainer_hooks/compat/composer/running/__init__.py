"""How Composer's events come out of the hooks of trainer_hooks."""
