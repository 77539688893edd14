SELECT DISTINCT number, id FROM `{table}` WHERE edition IN ({editions}) AND number BETWEEN {first} AND {last} LIMIT {most} FORMAT TSV
