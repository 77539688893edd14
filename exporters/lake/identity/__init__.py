"""Identities of machines and pods that the library of stores does not know."""
