"""HTML pages and figures of runs, studies and analyses; what a run prints at its end."""
