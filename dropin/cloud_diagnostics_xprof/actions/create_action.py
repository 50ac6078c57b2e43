from runwatch.compat.xprofiler.actions import Create, startup_script_string

__all__ = ["Create", "startup_script_string"]
