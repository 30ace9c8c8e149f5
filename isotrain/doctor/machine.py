"""The machine: threads, devices, memory and disk, Slurm."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path

from isotrain.doctor.line import Line
from isotrain.jobs.devices import VISIBLE, cuda_devices

LEAST_MEMORY, LEAST_DISK = 2.0, 1.0  # GiB, below which a line says so
GIB = 1 << 30


def threads() -> Iterator[Line]:
    """Cores of this process, and what would make torch take more or fewer threads."""
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    yield Line("machine", "cores", str(cores))
    given = os.environ.get("OMP_NUM_THREADS")
    found = "not set: torch takes what it finds best; results depend on it, threads=... fixes it"
    fix = ""
    if given is not None:
        found = f"{given}: the threads of torch, unless threads=... says otherwise"
        if not given.isdigit() or not 1 <= int(given) <= cores:
            fix = f"set OMP_NUM_THREADS to a number from 1 to {cores}, or unset it"
    yield Line("machine", "OMP_NUM_THREADS", found, fix)


def devices() -> Iterator[Line]:
    """Accelerators; torch, which takes seconds, is imported only where there may be one."""
    listed = cuda_devices()
    is_apple = platform.system() == "Darwin" and platform.machine() == "arm64"
    if not listed and not is_apple:
        hidden = os.environ.get(VISIBLE)
        why = f"{VISIBLE}={hidden!r} hides all" if hidden is not None else "nvidia-smi lists none"
        yield Line("machine", "accelerator", f"none: runs are on the CPU ({why})")
        return
    import torch

    yield Line("machine", "threads of torch", str(torch.get_num_threads()))
    if is_apple:
        usable = torch.backends.mps.is_available()
        fix = "" if usable else "install a torch for Apple silicon, with macOS 14 or newer"
        yield Line("machine", "MPS", "usable" if usable else "not usable by torch", fix)
    elif not torch.cuda.is_available():
        found = f"{len(listed)} listed, none usable by torch {torch.__version__}"
        fix = "install a torch built for CUDA (pytorch.org), or a newer driver"
        yield Line("machine", "CUDA", found, fix)
    else:
        for number in range(torch.cuda.device_count()):
            free, total = torch.cuda.mem_get_info(number)
            name = torch.cuda.get_device_name(number)
            memory = f"{free / GIB:.1f} of {total / GIB:.1f} GiB free"
            yield Line("machine", f"CUDA {number}", f"{name}, {memory}")


def space(output_dir: Path) -> Iterator[Line]:
    """Free memory, and free disk where runs are written."""
    if (free := free_memory()) is not None:
        fix = "close other programs, or lower data.batch_size" if free < LEAST_MEMORY else ""
        yield Line("machine", "memory", f"{free:.1f} GiB free", fix)
    target = output_dir.absolute()
    there = next(folder for folder in (target, *target.parents) if folder.exists())
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        found = f"{target}: nothing can be written to {there}"
        yield Line("machine", "output_dir", found, "choose another: output_dir=...", stops=True)
        return
    disk = shutil.disk_usage(there).free / GIB
    fix = "free some, or choose another output_dir=..." if disk < LEAST_DISK else ""
    yield Line("machine", "output_dir", f"{target}, {disk:.1f} GiB free", fix)


def free_memory(proc: Path = Path("/proc"), group: Path = Path("/sys/fs/cgroup")) -> float | None:
    """GiB that programs may still take, of the machine and of this container; None if unknown."""
    found = []
    try:
        lines = (proc / "meminfo").read_text().splitlines()
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")]
        most, used = ((group / f"memory.{name}").read_text().strip() for name in ("max", "current"))
        found += [int(most) - int(used)] if most != "max" else []
    except OSError:
        pass  # no Linux, or no container
    return min(found) / GIB if found else None


def slurm() -> Iterator[Line]:
    """Whether this is a Slurm job, or a machine that can submit one."""
    job = os.environ.get("SLURM_JOB_ID")
    if job:
        tasks = os.environ.get("SLURM_NTASKS", "1")
        yield Line("machine", "Slurm", f"inside job {job}, {tasks} tasks")
    elif shutil.which("sbatch"):
        yield Line("machine", "Slurm", "sbatch is here", "docs/sweeps.md has an array of runs")
    else:
        yield Line("machine", "Slurm", "not here")
