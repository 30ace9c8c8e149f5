"""Tables over finished runs: statistics, confidence intervals, markdown, LaTeX, csv, W&B."""
