"""What sellers of calls charged in the end, asked for by the id of a call; knows no HTTP client."""
