"""The command `plugins`: what is installed, whether it is right, and a new one."""
