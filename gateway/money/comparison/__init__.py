"""Comparison of costs between two times: the change and its parts."""
