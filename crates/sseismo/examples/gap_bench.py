"""The figures of gap_bench.rs by DuckDB and polars, from the same files, with CPU seconds.

pip install duckdb polars; python3 gap_bench.py DIR
"""

import os
import sys
import time

THREADS = 1
os.environ["POLARS_MAX_THREADS"] = str(THREADS)

import duckdb  # noqa: E402
import polars as pl  # noqa: E402

events = os.path.join(sys.argv[1], "events", "**", "*.parquet")


def timed(name, ask):
    start = time.process_time()
    gaps, dead, joined = ask()
    print(f"{name}: {gaps} gaps, {dead} dead, {joined} joined, cpu {time.process_time() - start:.2f} s")


def by_duckdb():
    connection = duckdb.connect()
    connection.execute(f"set threads = {THREADS}")
    return connection.execute(
        f"""
        with stepped as (
            select stream_id, t_us - lag(t_us) over w as gap, kind = lag(kind) over w as same
            from read_parquet('{events}')
            window w as (partition by stream_id order by seq)
        ), per_stream as (
            select stream_id, count(*) as gaps, avg(gap), stddev_pop(gap), max(gap),
                   count(*) filter (gap > 1000000) as dead, count(*) filter (gap < 1000) as joined
            from stepped where same and gap >= 0 group by stream_id
        )
        select sum(gaps), sum(dead), sum(joined) from per_stream
        """
    ).fetchone()


def by_polars(engine):
    # Rows of a stream lie together and in order, so no sort is asked for: polars' best case.
    before = {"gap": pl.col("t_us") - pl.col("t_us").shift(1), "same": pl.col("kind") == pl.col("kind").shift(1)}
    return (
        pl.scan_parquet(events)
        .with_columns(**before, stream=pl.col("stream_id") == pl.col("stream_id").shift(1))
        .filter(pl.col("same") & pl.col("stream") & (pl.col("gap") >= 0))
        .group_by("stream_id")
        .agg(
            gaps=pl.len(),
            mean=pl.col("gap").mean(),
            sd=pl.col("gap").std(ddof=0),
            longest=pl.col("gap").max(),
            dead=(pl.col("gap") > 1_000_000).sum(),
            joined=(pl.col("gap") < 1_000).sum(),
        )
        .select(pl.col("gaps").sum(), pl.col("dead").sum(), pl.col("joined").sum())
        .collect(engine=engine)
        .row(0)
    )


timed("duckdb", by_duckdb)
timed("polars in memory", lambda: by_polars("in-memory"))
timed("polars streaming", lambda: by_polars("streaming"))
