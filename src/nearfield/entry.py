"""The command `nearfield`: says what to install where the command line's packages are missing, else runs it."""

from __future__ import annotations

import sys
from importlib.util import find_spec


def main() -> int:
    """Run the command line; exit code 2, and one line, without typer or pyarrow."""
    missing = [name for name in ("typer", "pyarrow") if find_spec(name) is None]
    if missing:
        print(
            f"nearfield: error: the command line needs {' and '.join(missing)}: pip install 'nearfield[cli]'",
            file=sys.stderr,
        )
        return 2
    from nearfield.cli import main as run

    return run()
