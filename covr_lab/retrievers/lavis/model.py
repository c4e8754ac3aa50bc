"""BLIP run by LAVIS's own code, for comparison with the network of transformers."""

from __future__ import annotations

from torch import Tensor, nn

from covr_lab.retrievers.blip.model import Blip
from covr_lab.retrievers.blip.weights import Checkpoint, towers, transformers_key
from covr_lab.retrievers.lavis.compat import text_encoder, vision_encoder


class LavisNetwork(nn.Module):
    """LAVIS's BLIP encoders and the linear layers behind them, named as in its checkpoints."""

    def __init__(self, read: Checkpoint) -> None:
        super().__init__()
        vision, text = towers(read.config)
        self.visual_encoder = vision_encoder(vision)
        self.text_encoder = text_encoder(text, vision.hidden_size)
        self.vision_proj = nn.Linear(vision.hidden_size, read.config.image_text_hidden_size)
        self.text_proj = nn.Linear(text.hidden_size, read.config.image_text_hidden_size)
        if "itm_head.weight" in read.tensors:
            self.itm_head = nn.Linear(text.hidden_size, 2)
        own = self.state_dict()
        self.load_state_dict({key: read.tensors.get(transformers_key(key), own[key]) for key in own})


class LavisBlip(Blip):
    """:class:`~covr_lab.retrievers.blip.model.Blip`, its two encoders those of salesforce-lavis 1.0.2.

    Same settings, same checkpoints, same outputs to about 1e-6; ``make lavis`` installs what it needs. It is here to
    show that the other one computes what LAVIS computes.
    """

    libraries = (*Blip.libraries, "salesforce-lavis", "timm")

    def _build(self, read: Checkpoint) -> nn.Module:
        return LavisNetwork(read)

    def _see(self, pixels: Tensor) -> Tensor:
        states: Tensor = self.network.visual_encoder.forward_features(pixels)
        return states

    def _read(self, ids: Tensor, attended: Tensor, tokens: Tensor | None) -> Tensor:
        states: Tensor = self.network.text_encoder(
            ids,
            attention_mask=attended,
            encoder_hidden_states=tokens,
            return_dict=True,
            mode="text" if tokens is None else "multimodal",
        ).last_hidden_state
        return states
