"""Providers' reports of what they billed: recognition, readers, imports and pulls."""
