"""`isotrain report`: pages of run folders, without torch."""

import os
import subprocess
import sys

from tests.pages.small_run import write_run

CODE = """
import sys
from isotrain.cli import main
sys.argv = ["isotrain", *sys.argv[1:]]
try:
    sys.exit(main())
finally:
    assert "torch" not in sys.modules and "transformers" not in sys.modules
"""


def test_the_command_without_torch(tmp_path):
    run = write_run(tmp_path / "a", isotropy=False)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", CODE, "report", str(run)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str(run / "report.html")]
    assert (run / "report.html").is_file()
