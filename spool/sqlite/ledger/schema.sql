-- One row for every distinct set of dimensions; '' is unknown. Sums refer to it, so that a text is kept once.
CREATE TABLE keys (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    source TEXT NOT NULL,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    request_model TEXT NOT NULL,
    team TEXT NOT NULL,
    user TEXT NOT NULL,
    device TEXT NOT NULL,
    api_key TEXT NOT NULL,
    tags TEXT NOT NULL,
    status TEXT NOT NULL,
    cost_source TEXT NOT NULL,
    mode TEXT NOT NULL,
    size INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX keys_by_dimensions ON keys (
    model, user, device, api_key, team, tags, source, provider, request_model, status, cost_source, kind, mode, size
);

-- The lowest number that was counted in an hour, or in a day that has no hours any more (width in seconds): a period can
-- be counted anew only while that number is kept. `frozen` while a rebuild reads numbers again that the sums have.
CREATE TABLE periods (
    width INTEGER NOT NULL,
    start INTEGER NOT NULL,
    first INTEGER NOT NULL,
    frozen INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (width, start)
) STRICT, WITHOUT ROWID;

-- reach: the next number to count. rebuilding: below it, frozen periods hold what is read. daily: days before it are in
-- `days`. hourly: hours before it are only in their days. missed, damaged, absurd: numbers that could not be counted.
-- whole: hours before it may lack the missed.
CREATE TABLE state (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
