-- The colour of each name in charts. `name` is a keyed digest. The row with an empty name is locked while names are added.
CREATE TABLE colours (
    dimension TEXT    NOT NULL,
    name      TEXT    NOT NULL,
    colour    INTEGER NOT NULL,
    PRIMARY KEY (dimension, name)
) STRICT, WITHOUT ROWID;
