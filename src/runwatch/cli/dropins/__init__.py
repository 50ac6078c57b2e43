"""The distribution `runwatch-dropin` in this Python: what is there of it, and stand-ins for pip."""
