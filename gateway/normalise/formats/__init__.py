"""
Conversion of gateway formats to records, with one module per format. Nothing here waits, and no prompt
leaves a decoder.
"""
