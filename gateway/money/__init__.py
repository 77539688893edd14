"""What calls cost, and what people plan, note and decide about it."""
