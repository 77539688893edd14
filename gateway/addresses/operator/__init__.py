"""The table of addresses of the operator API, an area a module."""
