"""Tables that both SQL engines store alike, on what `connection.py` describes."""
