"""Errors, schemas and declarations of fields that every room uses."""
