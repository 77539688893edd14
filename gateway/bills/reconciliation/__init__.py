"""
Reconciliation of provider bills with counted costs: the exact parts of the difference, and their causes.
"""
