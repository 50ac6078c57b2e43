-- Deleted runs, one row per state that each went through: `deleted`, `restored`, `purged`.
-- `number` is the run's; a later run with the same id gets another number.  The last three columns
-- count the journals, scopes and series at that time: the deletion does not cover later ones.
CREATE TABLE deletions (
    number BIGINT, run VARCHAR, name VARCHAR, state VARCHAR, at_ns BIGINT, purge_ns BIGINT,
    journals BIGINT, scopes BIGINT, series BIGINT
);
