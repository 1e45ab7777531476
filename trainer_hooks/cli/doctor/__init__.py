"""`trainer-hooks doctor`: the facts about an installation that a bug report needs."""
