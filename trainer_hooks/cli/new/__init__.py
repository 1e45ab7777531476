"""`trainer-hooks new`: a project with a training, to begin with."""
