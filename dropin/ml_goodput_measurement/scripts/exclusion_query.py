"""`runwatch.compat.goodput.scripts.exclusion_query`, also as a command."""

import sys

from runwatch.compat.goodput.scripts.exclusion_query import (
    analyze_run,
    get_project_id,
    load_intervals_from_json,
    main,
    print_report,
)

__all__ = ["analyze_run", "get_project_id", "load_intervals_from_json", "main", "print_report"]

if __name__ == "__main__":
    sys.exit(main())
