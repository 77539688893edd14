"""
`tollhouse drill`: injects faults on this machine with this configuration, and measures the consequences.
"""
