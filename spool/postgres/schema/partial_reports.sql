-- Waiting reports by key (spool/log/partial_reports.py). `kind` is the prefix of the key. `version` is a digest of
-- time and body, by which a commit checks that a report has not changed since it was read.
CREATE TABLE {schema}.partial_reports (
    shard smallint NOT NULL,
    key bytea NOT NULL,
    kind bytea NOT NULL,
    version bigint NOT NULL,
    at double precision NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (shard, key)
) WITH (fillfactor = 70);
ALTER TABLE {schema}.partial_reports ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE INDEX partial_reports_by_age ON {schema}.partial_reports (shard, kind, at, key);

-- Senders that reported calls, and when last, as digests (spool/log/heard.py): the caller, then what it reported.
-- There is no index by age; see spool/postgres/partial_reports.py.
CREATE TABLE {schema}.heard (
    shard smallint NOT NULL,
    reporter bytea NOT NULL,
    at double precision NOT NULL,
    PRIMARY KEY (shard, reporter)
) WITH (fillfactor = 70);
