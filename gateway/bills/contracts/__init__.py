"""Contracts with providers: their terms about the prices of calls, and the costs of capacity."""
