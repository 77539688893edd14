"""The calls of the operator API on people: accounts, signing in, roles and what they open."""
