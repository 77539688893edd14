-- From this version on a log may hold amounts in other currencies than dollars, which releases before would leave out of
-- their sums. They are fields of records, so no table changes; SQLite's file is refused by such a release from now on, a
-- schema of PostgreSQL from the first such amount on.
SELECT 1;
