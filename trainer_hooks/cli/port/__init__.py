"""`trainer-hooks port`: rewrite the import lines of code for other frameworks."""
