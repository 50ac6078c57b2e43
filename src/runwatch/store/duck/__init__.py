"""The embedded engine: DuckDB for hot rows, sorted Parquet files for closed ones."""
