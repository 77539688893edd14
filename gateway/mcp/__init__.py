"""Assistants that ask: the Model Context Protocol, and the tools that it offers."""
