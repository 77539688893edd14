"""What plans of assistants cost, and which calls they cover: worked out of the ledger when somebody asks."""
