"""Engines: generators that reasoners borrow by name."""
