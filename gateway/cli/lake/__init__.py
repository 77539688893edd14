"""Commands that look at what destinations have written into your own store."""
