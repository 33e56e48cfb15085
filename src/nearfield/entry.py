"""The command `nearfield`: says what to install where the command line's packages are missing, else runs it."""

from __future__ import annotations

import gc
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
    gc.disable()  # what is loaded stays: to look for cycles in it took a sixth of a short command's time
    _load_families()
    from nearfield.cli import main as run

    code = run()
    gc.disable()  # nor at the end
    return code


def _load_families() -> None:
    """Import the modules that other packages name in the group `nearfield.families`, to register families of theirs."""
    from importlib.metadata import entry_points

    for point in entry_points(group="nearfield.families"):
        try:
            point.load()
        except Exception as error:
            print(f"nearfield: warning: the families of {point.value} cannot be used: {error}", file=sys.stderr)
