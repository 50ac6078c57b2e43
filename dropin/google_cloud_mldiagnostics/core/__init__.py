"""The current run, for programs that ask for it (`global_manager`)."""
