"""Start and follow processes: one job, its devices and locks, and sweeps of `train -m`."""
