-- People of an OpenID provider. Accounts and sessions of before are Tollhouse's own; a session lasted twelve hours.

ALTER TABLE operators ADD COLUMN disabled INTEGER NOT NULL DEFAULT 0;
ALTER TABLE operators ADD COLUMN issuer TEXT NOT NULL DEFAULT '';
ALTER TABLE operators ADD COLUMN subject TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN ends_at REAL NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN issuer TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN subject TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN provider_session TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN groups TEXT NOT NULL DEFAULT '[]';
ALTER TABLE sessions ADD COLUMN refreshes INTEGER NOT NULL DEFAULT 0;
UPDATE sessions SET ends_at = created_at + 43200;
