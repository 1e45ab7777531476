"""What a run tells at its start and its end, and how it is started again."""
