"""One module for each verb, as in the original."""
