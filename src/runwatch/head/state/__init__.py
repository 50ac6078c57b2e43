"""What a head keeps up as batches are stored; several features ask for it."""
