"""Pure functions without state: one idea a file."""
