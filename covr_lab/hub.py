"""Annotations, features and checkpoints by name: a local path, or a file or folder on the Hugging Face Hub.

Nothing is fetched unless its name starts with ``hf://``. What was fetched stays in the cache of huggingface_hub;
``HF_ENDPOINT``, ``HF_HOME``, ``HF_TOKEN`` and ``HF_HUB_OFFLINE`` mean what they mean there.
"""

from __future__ import annotations

from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING

from covr_lab.types import Refused

if TYPE_CHECKING:
    from huggingface_hub import HfUri

FORM = "write hf://OWNER/NAME@REVISION/PATH, for a data set hf://datasets/OWNER/NAME@REVISION/PATH"


def local_path(spec: str | Path) -> Path:
    """Where the thing named ``spec`` lies on this machine; fetches it if it is on the Hub and not yet in the cache.

    Args:
        spec: a local path, taken as it is; or ``hf://owner/name@revision/path/in/repo`` (a model's repository) or
            ``hf://datasets/owner/name@revision/path``. The revision is a commit, tag or branch and must be given: a
            commit never changes, and once cached it is found without a network. A name that ends with ``/`` is a
            folder.

    Raises:
        Refused: the name is malformed, or the file cannot be had; nothing half fetched is left under its name.

    >>> local_path("annotations/test.csv").name
    'test.csv'
    >>> local_path("hf://owner/name/test.csv")
    Traceback (most recent call last):
    ...
    covr_lab.types.Refused: hf://owner/name/test.csv: no revision (write hf://owner/name@REVISION/test.csv)
    """
    name = str(spec)
    if not name.startswith("hf://"):
        return Path(spec)
    uri = _parsed(name)
    try:
        path = _fetched(uri, folder=name.endswith("/"))
    except Exception as error:  # the ways of three libraries to fail, without a common base
        raise Refused(f"{name}: {_reason(error)}") from error
    if not path.exists():
        raise Refused(f"{name}: no such folder in the repository (check the path after the revision)")
    return path


def _parsed(name: str) -> HfUri:
    from huggingface_hub import parse_hf_uri

    try:
        uri = parse_hf_uri(name)
    except ValueError as error:
        raise Refused(f"{name}: not the name of a file on the Hub ({FORM})") from error
    if uri.type not in ("model", "dataset") or ".." in uri.path_in_repo.split("/"):
        raise Refused(f"{name}: not a file of a model or data set ({FORM})")
    if uri.revision is None:
        repo = f"hf://{'datasets/' if uri.type == 'dataset' else ''}{uri.id}"
        raise Refused(f"{name}: no revision (write {repo}@REVISION/{uri.path_in_repo})")
    if not uri.path_in_repo and not name.endswith("/"):
        raise Refused(f"{name}: names no file (add /PATH, or a slash at the end for the whole repository)")
    return uri


def _fetched(uri: HfUri, folder: bool) -> Path:
    from huggingface_hub import hf_hub_download, snapshot_download

    if not folder:
        return Path(hf_hub_download(uri.id, uri.path_in_repo, repo_type=uri.type, revision=uri.revision))
    pattern = f"{escape(uri.path_in_repo)}/*" if uri.path_in_repo else "*"
    skip = ["*.h5", "*.msgpack", "*.ot", "*.onnx"]  # other frameworks' copies of the weights
    root = snapshot_download(
        uri.id, repo_type=uri.type, revision=uri.revision, allow_patterns=pattern, ignore_patterns=skip
    )
    return Path(root) / uri.path_in_repo


def _reason(error: Exception) -> str:
    """Why nothing was fetched and the mend, in one line."""
    from huggingface_hub import constants, errors

    if isinstance(error, errors.RepositoryNotFoundError):
        return "no such repository, or one that asks for a login (check owner and name, or run: hf auth login)"
    if isinstance(error, errors.RevisionNotFoundError):
        return "no such revision of the repository (check what follows the @)"
    if isinstance(error, errors.RemoteEntryNotFoundError):
        return "no such file in the repository (check the path after the revision)"
    if constants.is_offline_mode():
        return "not in the local cache, and HF_HUB_OFFLINE is set (unset it once to fetch it, or name a local path)"
    if isinstance(error, errors.LocalEntryNotFoundError):
        return f"{constants.ENDPOINT} does not answer (check the network and HF_ENDPOINT, or name a local path)"
    first = str(error).split("\n")[0]
    return f"not fetched: {type(error).__name__}: {first} (try again, or name a local path)"
