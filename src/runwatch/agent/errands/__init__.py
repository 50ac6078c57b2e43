"""The commands of a head that an agent carries out."""
