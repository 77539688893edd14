"""What destinations of type s3, gcs, azure and file write: files of records, each record once."""
