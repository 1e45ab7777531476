"""The command `new`: create a project with a training."""
