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
        "try:\n    main()\n"
        "finally:\n    assert 'torch' not in sys.modules and 'transformers' not in sys.modules\n"
    )
    arguments = [sys.executable, "-W", "error", "-c", code, "report", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    return subprocess.run(arguments, capture_output=True, text=True, env=environment, timeout=120)


def test_the_command_without_torch(tmp_path):
    runs = [write_run(tmp_path / name, isotropy=False) for name in ("a", "b")]
    done = command(*runs)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str(run / "report.html") for run in runs]
    assert all((run / "report.html").is_file() for run in runs)


def test_a_folder_that_is_no_run(tmp_path):
    run = write_run(tmp_path / "a", isotropy=False)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "result.json").write_text("{}")
    done = command(tmp_path / "nowhere", run, tmp_path / "c")
    assert done.returncode == 2
    assert "nowhere is no run folder" in done.stderr
    assert "give a folder such as" in done.stderr
    assert "Traceback" not in done.stderr
    assert str(run / "report.html") in done.stdout  # the others are written
