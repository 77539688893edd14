"""Dated rate cards, the published prices of models, as files; `make prices` makes them again."""
