-- Hours of AI cost as they were last sent to a billing connection: whether one has changed is a comparison of hashes.
CREATE TABLE {schema}.billing_hours (
    connection TEXT    NOT NULL,
    start      INTEGER NOT NULL,
    hash       BLOB    NOT NULL,
    rows       INTEGER NOT NULL,
    bytes      INTEGER NOT NULL,
    sent_at    REAL    NOT NULL,
    PRIMARY KEY (connection, start)
) STRICT, WITHOUT ROWID;
