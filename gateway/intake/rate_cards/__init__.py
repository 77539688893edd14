"""Dated price lists as files, with the published prices of models. `make prices` creates a new file."""
