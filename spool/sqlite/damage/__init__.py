"""
Handling of a damaged spool.sqlite: detection, a marker that survives restarts, and reading of the intact rows.
"""
