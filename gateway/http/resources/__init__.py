"""What people and keys create, list and change: one file declares a resource, and its faces are made from that."""
