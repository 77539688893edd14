"""Tables that both SQL engines store alike. See `connection.py` for what an engine provides."""
