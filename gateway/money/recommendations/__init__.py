"""
Recommendations: ways in which the same work could have cost less, computed from the tokens in the totals and
the price list.
"""
