"""
Insights. Detectors read the facts of the last weeks and report problems that an organization should fix.
"""
