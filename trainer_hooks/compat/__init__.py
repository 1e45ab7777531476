"""Names of other frameworks for our classes: code for them runs with other import lines."""
