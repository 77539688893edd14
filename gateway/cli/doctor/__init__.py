"""`tollhouse doctor`: what is wrong with this installation, and a bundle for bug reports."""
