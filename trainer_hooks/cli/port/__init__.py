"""`trainer-hooks port`: code of other frameworks, given the import lines that run it here."""
