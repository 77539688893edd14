-- Accepted hourly files, their rows by hour (compressed JSON), and the size of each month of a connection.
CREATE TABLE billing_drops (
    number     INTEGER PRIMARY KEY, -- number in the log: the order in which the files arrived
    id         TEXT    NOT NULL,
    connection TEXT    NOT NULL,
    month      TEXT    NOT NULL,
    operation  TEXT    NOT NULL,
    rows       INTEGER NOT NULL,
    at         REAL    NOT NULL
) STRICT;
CREATE INDEX billing_drops_by_month ON billing_drops (connection, month, id);

CREATE TABLE billing_rows (
    connection TEXT    NOT NULL,
    month      TEXT    NOT NULL,
    hour       INTEGER NOT NULL,
    number     INTEGER NOT NULL,
    rows       INTEGER NOT NULL,
    bytes      INTEGER NOT NULL,
    stored     INTEGER NOT NULL,
    body       BLOB    NOT NULL
) STRICT;
-- The index includes the sizes, so that a sum over them reads no body.
CREATE UNIQUE INDEX billing_rows_by_hour ON billing_rows (connection, month, hour, number);
CREATE INDEX billing_rows_by_size ON billing_rows (connection, month, number, hour, rows, bytes, stored);

CREATE TABLE billing_months (
    connection TEXT    NOT NULL,
    month      TEXT    NOT NULL,
    rows       INTEGER NOT NULL,
    bytes      INTEGER NOT NULL,
    stored     INTEGER NOT NULL,
    newest     REAL    NOT NULL,
    PRIMARY KEY (connection, month)
) STRICT, WITHOUT ROWID;

-- Hours of AI cost as last sent to a billing connection. An hour has changed if its hash differs.
CREATE TABLE billing_hours (
    connection TEXT    NOT NULL,
    start      INTEGER NOT NULL,
    hash       BLOB    NOT NULL,
    rows       INTEGER NOT NULL,
    bytes      INTEGER NOT NULL,
    sent_at    REAL    NOT NULL,
    PRIMARY KEY (connection, start)
) STRICT, WITHOUT ROWID;
