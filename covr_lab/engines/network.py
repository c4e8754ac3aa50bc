"""Language models of transformers: found, checked, and loaded once for all engines that name the same weights."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from logging import CRITICAL
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from covr_lab.engines.schema import grammar
from covr_lab.hub import local_path
from covr_lab.types import Refused

if TYPE_CHECKING:
    from pydantic import BaseModel
    from transformers import PreTrainedModel

SUFFIXES = frozenset({".bin", ".gguf", ".jinja", ".json", ".model", ".safetensors", ".txt"})  # what transformers reads
COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class Source:
    """Where weights come from, and how they are to be held.

    Attributes:
        model: folder, or a name on the Hub.
        revision: commit on the Hub; a folder of the model's name goes before it.
        gguf: name of a GGUF file in the folder, ``None`` for safetensors.
        dtype: ``auto`` for that of the checkpoint.
        attention: implementation, as transformers calls it.
    """

    model: str
    revision: str | None
    gguf: str | None
    dtype: str
    attention: str

    @property
    def on_hub(self) -> bool:
        """Whether the Hub is asked for it."""
        return self.revision is not None and not Path(self.model).is_dir()

    @property
    def identity(self) -> str:
        """Tells the weights from others without loading them: the commit, or the sha256 of the folder's files.

        Raises:
            Refused: there is no such folder.
        """
        if self.on_hub:
            return f"{self.model}@{self.revision}/{self.gguf or ''}"
        files = sorted(file for file in self._folder().iterdir() if file.suffix in SUFFIXES and self._read(file))
        return hashlib.sha256(json.dumps([(file.name, _digest(file)) for file in files]).encode()).hexdigest()

    def folder(self) -> Path:
        """The folder on this machine; fetches it from the Hub if it is not yet in the cache.

        Raises:
            Refused: it cannot be had.
        """
        if not self.on_hub:
            return self._folder()
        path = local_path(f"hf://{self.model}@{self.revision}/{self.gguf or ''}")
        return path if self.gguf is None else path.parent

    def _folder(self) -> Path:
        folder = Path(self.model)
        wanted = self.gguf or "config.json"
        if not folder.is_dir():
            raise Refused(f"model '{self.model}': no such folder (a model on the Hub needs its revision, a commit)")
        if not (folder / wanted).is_file():
            raise Refused(f"model '{self.model}' has no {wanted}: name a folder that transformers saved")
        return folder

    def _read(self, file: Path) -> bool:
        return file.name == self.gguf or file.suffix != ".gguf"


def _digest(file: Path) -> str:
    status = file.stat()
    return _digest_of(file, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=1024)
def _digest_of(file: Path, size: int, changed: int) -> str:
    del size, changed
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


class Network:
    """A model with what belongs to it; shared by engines, so it is not changed once it is loaded.

    Args:
        module: ``...ForConditionalGeneration`` or ``...ForCausalLM``.
        processor: of a model that sees; the tokenizer of one that does not.
        ends: tokens that end an answer.
        padding: token that fills short prompts.
    """

    def __init__(self, module: PreTrainedModel, processor: Any, ends: list[int], padding: int) -> None:
        self.module, self.processor, self.ends, self.padding = module, processor, ends, padding
        self.tokenizer = getattr(processor, "tokenizer", processor)
        text: Any = module.config.get_text_config()
        self.vocabulary, self.limit = int(text.vocab_size), int(text.max_position_embeddings)
        self._grammars = dict[str, Any]()

    def compiled(self, schema: type[BaseModel]) -> Any:
        """The grammar of a schema over this model's tokens; each is compiled once."""
        rules = grammar(schema)
        if rules not in self._grammars:
            self._grammars[rules] = self._compiler.compile_grammar(rules)
        return self._grammars[rules]

    @cached_property
    def _compiler(self) -> Any:
        import xgrammar

        tokens = xgrammar.TokenizerInfo.from_huggingface(
            self.tokenizer, vocab_size=self.vocabulary, stop_token_ids=self.ends
        )
        return xgrammar.GrammarCompiler(tokens)


LOADED: WeakValueDictionary[tuple[str, str, str], Network] = WeakValueDictionary()


def load_network(source: Source) -> Network:
    """The model of ``source``; the one in memory where an engine already holds equal weights.

    Raises:
        Refused: it cannot be read, or a weight is missing or unknown; one line that names the first ones.
    """
    key = (source.identity, source.dtype, source.attention)
    network = LOADED.get(key)
    if network is None:
        network = LOADED[key] = _load(source)
    return network


def _load(source: Source) -> Network:
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, AutoProcessor, AutoTokenizer
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES as SEEING

    folder = source.folder()
    file = {} if source.gguf is None else {"gguf_file": source.gguf}
    options: dict[str, Any] = {"dtype": source.dtype, "attn_implementation": source.attention, **file}
    # A weight of another shape is then told like one that is missing.
    options |= {"output_loading_info": True, "ignore_mismatched_sizes": True}
    try:
        with quiet():
            sees = not file and AutoConfig.from_pretrained(folder).model_type in SEEING
            read: Any = AutoProcessor if sees else AutoTokenizer
            processor = read.from_pretrained(folder, **file)
            kind: Any = AutoModelForImageTextToText if sees else AutoModelForCausalLM
            module, told = kind.from_pretrained(folder, **options)
    except Exception as error:  # of transformers, safetensors, gguf, the operating system: without a common base
        reason = str(error).strip().split("\n")[0][:300] or type(error).__name__
        raise Refused(f"model '{source.model}' cannot be loaded: {reason}") from error
    check_weights(source.model, told)
    return _settled(source, module, processor)


def check_weights(model: str, told: Mapping[str, Any], unneeded: Callable[[str], bool] = lambda name: False) -> None:
    """Refuse a model with a weight that is missing, unknown or of a wrong shape.

    Args:
        model: its name, for the message.
        told: the loading report of transformers.
        unneeded: says of a weight's name whether the model may have or lack it.

    Raises:
        Refused: one line that names the first ones.
    """
    for fault in ("missing", "unexpected", "mismatched"):
        names = {key if isinstance(key, str) else key[0] for key in told[f"{fault}_keys"]}
        if keys := sorted(name for name in names if not unneeded(name)):
            raise Refused(
                f"model '{model}' has {fault} weights ({len(keys)}): {', '.join(keys[:3])} (fetch it again, or name "
                "another model)"
            )


@contextmanager
def quiet() -> Iterator[None]:
    """Without transformers' table of faulty weights: they are told in one line."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity(CRITICAL)
    try:
        yield
    finally:
        logging.set_verbosity(level)


def _settled(source: Source, module: Any, processor: Any) -> Network:
    """The network, greedy: of the checkpoint's settings of generation only ends and biases of tokens stay."""
    from transformers import GenerationConfig

    told, tokenizer = module.generation_config, getattr(processor, "tokenizer", processor)
    named = told.eos_token_id if isinstance(told.eos_token_id, list) else [told.eos_token_id]
    ends = sorted({int(token) for token in (*named, tokenizer.eos_token_id) if token is not None})
    if not ends:
        raise Refused(f"model '{source.model}' names no token that ends an answer: set eos_token in its tokenizer")
    padding = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else ends[0]
    bias = told.sequence_bias
    settings: Any = GenerationConfig  # has no types
    module.generation_config = settings(eos_token_id=ends, pad_token_id=padding, sequence_bias=bias)
    return Network(module, processor, ends, padding)
