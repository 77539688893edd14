"""
Data lakes: destinations of type s3, gcs, azure and file, which write each record exactly once into files.
"""
