"""The command `plugins`: list and check installed plugins, create a new one."""
