-- From this version on a log may hold corrections of closed records, which releases before cannot read. They are records,
-- so no table changes; SQLite's file is refused by such a release from now on, a schema of PostgreSQL from the first
-- correction on.
SELECT 1;
