"""A third-party OpenID Connect provider in its own environment."""
