"""Studies: a list of runs, and the tables, figures and claims to make from them."""
