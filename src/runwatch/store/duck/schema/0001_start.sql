-- The catalogue: small, append-only, also kept in memory.  Numbers are the store's own.
CREATE TABLE journals (
    number BIGINT, journal VARCHAR, host VARCHAR, pid BIGINT, start_ns BIGINT, boot VARCHAR,
    process_start_ticks BIGINT, role VARCHAR, version VARCHAR
);
CREATE TABLE runs (number BIGINT, run VARCHAR);
CREATE TABLE scopes (
    journal BIGINT, scope BIGINT, run VARCHAR, name VARCHAR, rank BIGINT, world_size BIGINT,
    attempt_key VARCHAR, run_group VARCHAR
);
CREATE TABLE metrics (number BIGINT, metric VARCHAR);
CREATE TABLE series (
    series BIGINT, journal BIGINT, local BIGINT, scope BIGINT, unit VARCHAR, device VARCHAR,
    labels VARCHAR
);
CREATE TABLE span_names (number BIGINT, journal BIGINT, local BIGINT, scope BIGINT, name VARCHAR);

-- A generation owns a set of hot tables (points_7, spans_7, events_7, cursors_7, latest_7).
-- It is in this list until its rows are in registered blocks.
CREATE TABLE generations (generation BIGINT, created_ns BIGINT);

-- Closed files.  A file that is not listed does not exist for any reader.
CREATE TABLE blocks (
    file VARCHAR, kind VARCHAR, part BIGINT, family BIGINT, day BIGINT, level BIGINT,
    row_count BIGINT, bytes BIGINT, key_min BIGINT, key_max BIGINT, time_min BIGINT, time_max BIGINT
);

-- One row per change to `blocks`.  If the manifest has a higher number than the newest one here,
-- this database has lost its latest changes.
CREATE TABLE changes (change BIGINT);
