"""
Billed costs: every amount of a bill is divided among the recorded calls that it pays for, without any
remainder lost. Pure.
"""
