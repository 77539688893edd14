"""Limits that others enforce: their readings, and the comparison of their counters with the totals."""
