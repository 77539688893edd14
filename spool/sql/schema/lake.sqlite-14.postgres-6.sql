-- The edition of the numbers of a route from `first` on: a restored copy of the data gives numbers again, so it begins another one.
-- The rows of the route '' are those of the log, in the order in which they began.
CREATE TABLE {schema}.lake_editions (
    route   TEXT    NOT NULL,
    first   INTEGER NOT NULL,
    edition TEXT    NOT NULL,
    PRIMARY KEY (route, first)
) STRICT, WITHOUT ROWID;
-- Deliveries that are in a lake, each with its manifest; written in the transaction that settles the delivery.
CREATE TABLE {schema}.lake_files (
    route   TEXT    NOT NULL,
    first   INTEGER NOT NULL,
    last    INTEGER NOT NULL,
    edition TEXT    NOT NULL,
    body    BLOB    NOT NULL,
    PRIMARY KEY (route, first)
) STRICT, WITHOUT ROWID;
