"""Print sums over the files of a lake as polars reads them, as a line of JSON: `polars_reader GLOB`."""

import json
import sys

import polars as pl


def main(files: str) -> None:
    rows = pl.scan_parquet(files, hive_partitioning=True)
    counted = pl.col("counted")
    found = rows.select(
        rows=pl.len(),
        ids=pl.col("id").n_unique(),
        first=pl.col("number").min(),
        last=pl.col("number").max(),
        spend=pl.col("spend").filter(counted).sum(),
        calls=pl.col("calls").filter(counted).sum(),
        first_at=pl.col("at").min().dt.to_string("iso:strict"),
        tags=pl.col("tags").list.len().sum(),
    ).collect()
    print(json.dumps({name: str(value) for name, value in found.to_dicts()[0].items()}))


if __name__ == "__main__":
    main(sys.argv[1])
