"""`isotrain report`: pages of run folders, without torch."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.pages.small_run import write_run


def command(*arguments):
    code = (
        "import sys; sys.argv = ['isotrain', *sys.argv[1:]]\n"
        "from isotrain.cli import main\n"
        "try:\n    sys.exit(main())\n"
        "finally:\n    assert 'torch' not in sys.modules and 'transformers' not in sys.modules\n"
    )
    arguments = [sys.executable, "-W", "error", "-c", code, "report", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    return subprocess.run(arguments, capture_output=True, text=True, env=environment, timeout=120)


def test_the_command_without_torch(tmp_path):
    run = write_run(tmp_path / "a", isotropy=False)
    done = command(run)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str(run / "report.html")]
    assert (run / "report.html").is_file()


def test_a_folder_that_is_not_there(tmp_path):
    done = command(tmp_path / "nowhere")
    assert done.returncode == 2
    assert f"there is no study {tmp_path / 'nowhere'}" in done.stderr
    assert "Traceback" not in done.stderr
