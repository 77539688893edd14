"""Prices that operators set, on top of the price list."""
