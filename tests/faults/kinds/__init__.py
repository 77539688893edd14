"""What is broken on purpose, so that the tests show that they would see it."""
