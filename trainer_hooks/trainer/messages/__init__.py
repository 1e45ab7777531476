"""The lines of a run at its start and its end, and the line that starts it again."""
