"""Deliberate defects, which prove that the fault tests detect them."""
