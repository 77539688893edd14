"""Operations of people and keys, a folder for each subject. Receivers and holders of requests."""
