-- The order of lists of container files: without it a page passes over all of them.
CREATE INDEX container_files_order ON container_files (announced_at, id);
