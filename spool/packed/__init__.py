"""Readers of packed records without Python objects, by the compiled module."""
