"""The calls of the operator API on deliveries, and on the records that no upstream took."""
