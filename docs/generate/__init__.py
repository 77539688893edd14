"""Generators of pages and console files that are written from the code or from npm. The wheel does not contain them."""
