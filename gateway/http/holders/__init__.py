"""What handlers work with: a holder for each area, so that a handler names the one that it needs."""
