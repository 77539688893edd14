"""Commands for the files that destinations have written to your own store."""
