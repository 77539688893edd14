"""The calls of the operator API on definitions of allocation."""
