"""HTML pages and figures of runs and studies; the terminal summary of a run."""
