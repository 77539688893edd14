"""
Power cuts: record a process's writes, construct the disk as a cut would leave it, and start Tollhouse on it.
"""
