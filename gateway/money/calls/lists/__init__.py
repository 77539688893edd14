"""Rows and lists as every answer shows them, to keys and to people alike."""
