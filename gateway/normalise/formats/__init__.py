"""
Conversion of gateway formats to records, with one module per format. Decoders do no I/O, and no prompt leaves them.
"""
