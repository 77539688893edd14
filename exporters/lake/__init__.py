"""Data lakes (s3, gcs, azure, file): each record exactly once in files."""
