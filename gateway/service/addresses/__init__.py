"""The table of addresses, one row each, grouped by area, and the applications built from the rows."""
