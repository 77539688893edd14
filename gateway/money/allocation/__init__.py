"""Allocation: dimensions of an organization's own, made by rules from the ledger's. No sum changes by them."""
