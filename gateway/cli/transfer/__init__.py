"""Commands that carry what is kept elsewhere: backups and bundles."""
