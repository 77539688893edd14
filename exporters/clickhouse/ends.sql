SELECT min(number), max(number), count() FROM `{table}` FORMAT JSONCompactEachRow SETTINGS output_format_json_quote_64bit_integers = 0
