"""Loggers: `metrics.jsonl` has every record; W&B and TensorBoard get the few scalars of `few`."""
