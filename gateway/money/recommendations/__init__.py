"""What the same work could have cost less: arithmetic on the ledger's tokens and the price book."""
