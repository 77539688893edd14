"""Records as rows of a ClickHouse table."""
