"""Readers of packed records that make no Python objects of them, where the compiled module is there."""
