"""
Handling of a damaged spool.sqlite: detection, a marker that survives restarts, and reading the intact rows.
"""
