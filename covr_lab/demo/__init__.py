"""A generated world on pixels: short clips of moving shapes, their captions and edits, and a small BLIP for them."""
