"""Write a finished run as a folder for other libraries, and verify that it reproduces the run."""
