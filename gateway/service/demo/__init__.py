"""
A synthetic month of traffic: plausible calls of an organization from every kind of source, the same for
the same seed.

The calls go through the real intake into a real spool and ledger. Problems can be planted, so that
detectors find them.
"""
