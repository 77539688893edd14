"""The tables that both SQL engines store in the same way, by the interface that `connection.py` describes."""
