"""Readers of packed records that create no Python objects, if the compiled module is installed."""
