"""
Detectors: each one small pure module that looks at the facts of the house and says what it found.

A detector has a NAME and a `find`; DETECTORS in `inspector.py` lists them all.
"""
