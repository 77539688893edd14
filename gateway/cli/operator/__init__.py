"""The commands that work on a data directory: each is a client of the operator API."""
