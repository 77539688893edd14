"""Older records in a data lake: reading them back, and importing them from files."""
