"""Records from before in a lake: read back from it, and brought into it from files."""
