"""Logged values: reduced, kept, and handed on."""
