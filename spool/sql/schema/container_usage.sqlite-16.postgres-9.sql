-- What containers used, by cluster and day; day -1 has what is still being added up, and how far files are read.
CREATE TABLE {schema}.container_usage (
    account    TEXT    NOT NULL,
    region     TEXT    NOT NULL,
    cluster    TEXT    NOT NULL,
    day        INTEGER NOT NULL,
    changed_at REAL    NOT NULL,
    body       BLOB    NOT NULL,
    PRIMARY KEY (account, region, cluster, day)
) STRICT, WITHOUT ROWID;
