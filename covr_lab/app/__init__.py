"""People in the loop: actions, batching, journal and study behind a page."""
