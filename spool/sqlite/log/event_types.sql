-- The types of usage events, and how many of each were kept since this table is here.
CREATE TABLE event_types (
    type      TEXT    PRIMARY KEY,
    count     INTEGER NOT NULL,
    last_seen REAL    NOT NULL
) STRICT, WITHOUT ROWID;
