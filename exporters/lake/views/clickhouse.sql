CREATE OR REPLACE VIEW lake AS SELECT *, toDate(extract(_path, 'date=([0-9-]+)')) AS `date` FROM {rows};
