"""Start the runs of a study, and show how far they are."""
