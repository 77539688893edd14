"""Modules that all folders of the gateway may import: errors, schemas, fields, paths, limits and Parquet."""
