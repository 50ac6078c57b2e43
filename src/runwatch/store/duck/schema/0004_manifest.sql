-- No table changes.  From this version on the manifest is `manifest.log` (manifest.py).  An older
-- Runwatch would write a `manifest.json` beside it, and nobody could tell which of them holds.
SELECT 4;
