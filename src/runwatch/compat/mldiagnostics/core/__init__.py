"""The current run (`global_manager.py`) and its profiles (`xprof.py`)."""
