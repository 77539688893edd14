"""`tollhouse drill`: faults on this machine and this configuration, and what they cost, as measured."""
