"""Frameworks that own the loop, and say when a step begins and ends."""
