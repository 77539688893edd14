"""The calls of the operator API on people: roles, and what they open."""
