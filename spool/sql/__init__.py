"""
Tables that both SQL engines store in the same way. `connection.py` describes what an engine provides for them.
"""
