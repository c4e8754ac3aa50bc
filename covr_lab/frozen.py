"""Components never learn: the base of every module that a recipe assembles."""

from __future__ import annotations

from typing import Self

from torch import nn


class Frozen(nn.Module):
    """A module in eval mode whose parameters need no gradient, whatever the trainer asks for."""

    def freeze(self) -> Self:
        """Switch off gradients of all parameters, also of those loaded after construction."""
        self.requires_grad_(False)
        return self.train(False)

    def train(self, mode: bool = True) -> Self:
        """Stay in eval mode."""
        del mode
        return super().train(False)
