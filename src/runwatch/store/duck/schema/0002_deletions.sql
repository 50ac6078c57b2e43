-- Runs that were deleted, a row for each thing that was done: `deleted`, `restored`, `purged`.
-- `number` is the run's own; one that is recorded by the same id afterwards gets another.  The last
-- three say how many journals, scopes and series there were: what came later is not meant.
CREATE TABLE deletions (
    number BIGINT, run VARCHAR, name VARCHAR, state VARCHAR, at_ns BIGINT, purge_ns BIGINT,
    journals BIGINT, scopes BIGINT, series BIGINT
);
