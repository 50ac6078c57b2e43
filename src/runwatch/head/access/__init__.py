"""Who may use the HTTP and the gRPC port, and for what."""
