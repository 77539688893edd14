"""
Allocation: dimensions that an organization defines by rules over the dimensions of the totals. No total changes.
"""
