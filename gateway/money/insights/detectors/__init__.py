"""One module a detector: a NAME and a pure function `find`, which reads the facts and returns findings."""
