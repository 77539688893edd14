"""Tables that both SQL engines keep alike. `connection.py` says what an engine gives them."""
