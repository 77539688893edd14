"""Records that do not arrive where they are to go, or did not stay there."""
