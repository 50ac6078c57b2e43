"""The current run, for programs that ask for it (`global_manager`), and its profiles (`xprof`)."""
