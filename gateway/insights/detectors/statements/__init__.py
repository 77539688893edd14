"""Detectors that look at what providers billed."""
