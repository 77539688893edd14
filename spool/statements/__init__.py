"""Statements of providers: what they say that they billed."""
