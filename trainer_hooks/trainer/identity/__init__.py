"""Which run this is: its name, its data, and the process that it is in."""
