"""One question about costs and its answer, whoever asks: a key, a person, an assistant, a command or a schedule."""
