"""Commands that carry stored data elsewhere: backups, lakes and record files."""
