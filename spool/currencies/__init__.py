"""Currencies: their codes, amounts in them among the sums, and the step from one to another. Pure."""
