"""Detectors. Each function reads the facts and returns findings of one kind, and is pure."""
