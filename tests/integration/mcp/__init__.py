"""Assistants over HTTP and stdio, against the whole server."""
