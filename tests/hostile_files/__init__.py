"""Small files that require much memory, and processes that each read one of them."""
