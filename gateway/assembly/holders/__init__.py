"""Makes the holders that handlers of the operator API work with, a module for each."""
