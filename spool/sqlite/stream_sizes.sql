-- How much the totals of each stream take up, and under which key it was created: the totals are bounded by key.
CREATE TABLE stream_sizes (
    name       TEXT PRIMARY KEY,
    created_by TEXT    NOT NULL,
    bytes      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO stream_sizes SELECT name, '', 0 FROM streams;
UPDATE stream_sizes
   SET bytes = (SELECT coalesce(sum(192 + 2 * length(CAST(stream AS BLOB)) + length(coalesce(element_name, ''))
                                    + length(dimensions) + length(value)), 0)
                  FROM stream_totals WHERE stream = stream_sizes.name);
