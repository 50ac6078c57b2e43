-- No table changes.  Since this version the manifest is `manifest.log` (manifest.py).  An older
-- Runwatch would write a `manifest.json` beside it, and nobody could tell which one is valid.
SELECT 4;
