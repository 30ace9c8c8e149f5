"""A real Slurm of two nodes, n1 and n2, on this machine: its daemons, for tests.

    python tests/cluster/two_nodes.py start DIR --port 17100
    python tests/cluster/two_nodes.py stop DIR

It needs root, and Debian's packages slurm-wlm and munge. The controller listens at the port, the
nodes at the next two.
"""

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "squeue", "munge", "munged")
CONF = """
ClusterName=isotrain
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=cred_expire=5
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdSpoolDir={folder}/spool-%n
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=5
MinJobAge=60
ReturnToService=2
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={first} CPUs=1 RealMemory=4000
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={second} CPUs=1 RealMemory=4000
PartitionName=main Nodes=n1,n2 Default=YES
"""  # a requeued job starts again after `cred_expire`, by default two minutes


def missing() -> str:
    """Why Slurm cannot be started here; empty if it can."""
    if os.geteuid() != 0:
        return "Slurm's daemons need root"
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"no {', '.join(absent)}: apt-get install -y slurm-wlm munge" if absent else ""


def start(folder: Path, port: int) -> Path:
    """The configuration of a started Slurm, for `SLURM_CONF`; its state is below a folder."""
    _start_munge()
    (folder / "state").mkdir(parents=True)
    for name in ("n1", "n2"):
        (folder / f"spool-{name}").mkdir()
    conf = folder / "slurm.conf"
    more = {"host": socket.gethostname().partition(".")[0], "first": port + 1, "second": port + 2}
    conf.write_text(CONF.format(folder=folder, port=port, **more))
    environment = {**os.environ, "SLURM_CONF": str(conf)}
    for daemon in (["slurmctld"], ["slurmd", "-N", "n1"], ["slurmd", "-N", "n2"]):
        subprocess.run(daemon, check=True, env=environment, cwd=folder)
    deadline = time.monotonic() + 60
    while len(_words(environment, "sinfo", "-h", "-N", "-t", "idle", "-o", "%N")) != 2:
        if time.monotonic() > deadline:
            stop(folder)
            raise RuntimeError(f"the two nodes are not idle after a minute; logs: {folder}")
        time.sleep(0.5)
    return conf


def stop(folder: Path) -> None:
    """Cancel what is left, and end the daemons of a folder."""
    environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    subprocess.run(["scancel", "--user=root"], env=environment, capture_output=True)
    deadline = time.monotonic() + 40  # Slurm kills after 30 s
    while _words(environment, "squeue", "-h") and time.monotonic() < deadline:
        time.sleep(0.5)
    for path in folder.glob("slurm*.pid"):
        with suppress(OSError, ValueError):
            os.kill(int(path.read_text()), signal.SIGTERM)


def _start_munge() -> None:
    """Slurm's authentication, which all of the machine share; left running."""
    if subprocess.run(["munge", "-n"], capture_output=True).returncode == 0:
        return
    for path in ("/run/munge", "/etc/munge", "/var/lib/munge", "/var/log/munge"):
        Path(path).mkdir(exist_ok=True)
        subprocess.run(["chown", "-R", "munge:", path], check=True)
    subprocess.run(["runuser", "-u", "munge", "--", shutil.which("munged")], check=True)


def _words(environment: dict[str, str], *line: str) -> list[str]:
    """The words that a command prints."""
    return subprocess.run(line, capture_output=True, text=True, env=environment).stdout.split()


def main() -> None:
    """Start or stop it, by the command line."""
    parser = argparse.ArgumentParser(description="A Slurm of two nodes on this machine.")
    parser.add_argument("action", choices=["start", "stop"])
    parser.add_argument("folder", type=lambda text: Path(text).absolute())
    parser.add_argument("--port", type=int, default=17100, help="and the next two (17100)")
    given = parser.parse_args()
    if given.action == "stop":
        stop(given.folder)
    elif why := missing():
        sys.exit(why)
    else:
        print(f"export SLURM_CONF={start(given.folder, given.port)}")


if __name__ == "__main__":
    main()
