"""HTML pages and figures of runs and studies; terminal summary of a run."""
