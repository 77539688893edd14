"""Questions in SQL over the files of a lake, answered by DuckDB in a process of its own."""
