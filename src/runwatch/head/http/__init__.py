"""The HTTP port: what every feature needs to answer there."""
