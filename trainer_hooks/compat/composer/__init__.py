"""Composer's names over what is here."""
