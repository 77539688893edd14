"""
Limits that enforcers, such as AI gateways, apply: their readings, and the comparison of their counters with
the totals.
"""
