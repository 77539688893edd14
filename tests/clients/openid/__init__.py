"""A provider of OpenID Connect that others wrote, in an environment of its own."""
