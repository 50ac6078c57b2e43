"""One folder for each part of what a head does; none knows another."""
