"""The tables of a lake, one for each topic."""
