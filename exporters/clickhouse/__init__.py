"""Records as rows of a table of ClickHouse."""
