"""What an agent does when a head asks."""
