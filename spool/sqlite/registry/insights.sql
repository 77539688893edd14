-- What detectors found or people wrote down, and what operators made of it. Here and not beside the ledger's sums:
-- statuses and comments are the operators' own and cannot be made again.

CREATE TABLE insights (
    id           TEXT PRIMARY KEY,
    finding      TEXT UNIQUE, -- what makes a detector's finding the same one again; null when a person wrote it
    title        TEXT NOT NULL,
    description  TEXT NOT NULL,
    category     TEXT NOT NULL,
    link         TEXT NOT NULL,
    status       TEXT NOT NULL CHECK (status IN ('new', 'in_progress', 'on_hold', 'addressed', 'ignored')),
    status_at    REAL NOT NULL,
    effort       TEXT NOT NULL CHECK (effort IN ('not_set', 'low', 'medium', 'high')),
    cost_impact  TEXT NOT NULL,
    created      REAL NOT NULL,
    last_updated REAL NOT NULL,
    found_at     REAL, -- when it was last found
    present      INTEGER NOT NULL, -- whether the last look found it
    touched      INTEGER NOT NULL -- whether a person ever changed it: then it stays for good
) STRICT, WITHOUT ROWID;

-- AUTOINCREMENT: the number of a comment that went with its insight never comes again.
CREATE TABLE comments (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    insight      TEXT NOT NULL,
    text         TEXT NOT NULL,
    author       TEXT NOT NULL,
    created      REAL NOT NULL,
    last_updated REAL NOT NULL
) STRICT;
CREATE INDEX comments_by_insight ON comments (insight);
