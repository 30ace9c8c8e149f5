"""Studies: methods × tasks × seeds as a plan of runs, and which of them are finished."""
