"""What is searched, and the caches of what was encoded."""
