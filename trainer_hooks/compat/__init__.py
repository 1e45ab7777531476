"""Names of other frameworks over what is here: code for them runs by its import lines."""
