"""Stored rows, and everything derived from them."""
