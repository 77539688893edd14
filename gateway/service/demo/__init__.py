"""
A synthetic month: plausible traffic of an organization from every kind of source, the same for the same seed.

It goes through the real intake into a real spool and ledger; what is planted in it is there to be found.
"""
