"""
Allocation: dimensions that an organization defines by rules over the dimensions of the totals. The rules
never change a total.
"""
