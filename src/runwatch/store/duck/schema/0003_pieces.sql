-- No table changes.  From this version on a large body of an event lies in several rows (pieces.py),
-- which an older Runwatch would take for several events.
SELECT 3;
