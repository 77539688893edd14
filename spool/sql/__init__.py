"""Tables that both SQL engines keep alike, written once: an engine gives the connection, `connection.py` says how."""
