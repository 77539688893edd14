"""Assistants over HTTP and stdio, against a whole server."""
