"""Stored data as portable files: backups and copies."""
