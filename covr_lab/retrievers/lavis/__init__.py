"""LAVIS's own BLIP code (salesforce-lavis 1.0.2) as a backend; `make lavis` installs what it needs."""
