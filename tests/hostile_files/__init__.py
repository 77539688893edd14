"""Files that are small and want much memory, and processes that read one of them."""
