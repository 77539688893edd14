"""`tollhouse send`: files into request bodies, and their upload."""
