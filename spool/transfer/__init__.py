"""What is kept as files to be carried elsewhere: backups and bundles."""
