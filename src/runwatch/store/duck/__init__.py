"""The embedded engine: DuckDB for what is hot, sorted Parquet for what is closed."""
