"""What came in and is kept, record by record, for those who may read it."""
