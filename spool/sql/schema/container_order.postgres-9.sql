-- The order of lists of container files: without it a page passes over all of them. Null comes first, as in lists.
CREATE INDEX container_files_order ON {schema}.container_files (announced_at NULLS FIRST, id);
