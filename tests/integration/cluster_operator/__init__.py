"""The operator as a process, between an API server over TLS and a real head."""
