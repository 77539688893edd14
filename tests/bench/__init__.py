import os

# A server that may not keep compiled modules compiles those that it imports late while it is measured.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
