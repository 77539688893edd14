"""The storage engine SQLite."""
