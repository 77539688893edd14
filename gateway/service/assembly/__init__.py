"""Assembles Tollhouse from the storage up: for the server, for commands without one, and for `tollhouse demo`."""
