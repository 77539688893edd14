-- How much the totals of each stream take up, and under which key it was created: the totals are bounded by key.
CREATE TABLE stream_sizes (
    name       TEXT PRIMARY KEY,
    created_by TEXT    NOT NULL,
    bytes      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO stream_sizes
     SELECT name, '', (SELECT coalesce(sum(2 * length(CAST(stream AS BLOB)) + length(CAST(coalesce(element_name, '') AS BLOB))
                                           + length(CAST(dimensions AS BLOB)) + length(value) + 192), 0)
                         FROM stream_totals WHERE stream = name)
       FROM streams;
