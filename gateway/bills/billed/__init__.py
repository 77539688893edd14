"""Billed money by calls: every amount of a bill is divided over the ledger's own sums, to the last digit. Pure."""
