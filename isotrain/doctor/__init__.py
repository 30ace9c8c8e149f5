"""`isotrain doctor`: what is installed, which data and encoders are within reach."""
