"""
Generators of files that are written from the code or from public data: pages, files of the console, the rate card. The
wheel does not contain them.
"""
