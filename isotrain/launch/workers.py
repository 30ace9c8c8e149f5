"""End a worker process of a sweep with the process that launched it.

Otherwise joblib's workers block forever on a pipe without a reader. Each would keep its memory and
its device.
"""

import os
import signal
import time
from functools import cache
from multiprocessing import current_process
from threading import Thread

POLL_S = 1.0
GRACE_S = 60.0  # for the checkpoint of the active run


@cache  # once in a process
def end_with_caller() -> None:
    """Watch the process that started this one, if this is a worker."""
    if current_process().name != "MainProcess":
        Thread(target=_watch, args=(os.getppid(),), daemon=True).start()


def _watch(caller: int) -> None:
    while os.getppid() == caller:
        time.sleep(POLL_S)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_S)
    os._exit(128 + signal.SIGTERM)
