"""Stored data as files that are carried elsewhere: backups and copies."""
