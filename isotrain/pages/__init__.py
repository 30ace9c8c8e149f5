"""HTML pages and figures of runs, studies and analyses; terminal summary of a run."""
