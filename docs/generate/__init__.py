"""
Generators of files made from the code or from public data: pages, console files and the rate card.

The wheel does not contain these generators.
"""
