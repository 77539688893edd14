INSERT INTO `{table}` ({columns}) FORMAT JSONEachRow
