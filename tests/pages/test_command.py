"""`isotrain report`: pages of run folders, without torch."""

from tests.pages.small_run import write_run
from tests.processes import printed_by

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
    printed = printed_by("-W", "error", "-c", CODE, "report", run)
    assert printed.splitlines() == [str(run / "report.html")]
    assert (run / "report.html").is_file()
