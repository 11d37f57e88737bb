"""The few calls to the hub that publishing and fetching a memory need, with its errors as one line each."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepthink_cli.errors import DeepThinkError, InputError, option
from deepthink_cli.io.hub import forbidden_by, is_unreachable, quiet_libraries

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoSibling

_REPO = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[\w.-]{1,96}")


class Repository:
    """A model repository on the hub; the token is found by huggingface_hub (`hf auth login`, HF_TOKEN)."""

    def __init__(self, name: str, revision: str | None = None) -> None:
        if not _REPO.fullmatch(name) or ".." in name:
            raise InputError(f"{name}: not a repository of the hub; name one as OWNER/NAME")
        self.name, self.revision = name, revision
        self.commit_id: str | None = None  # of the listed files

    def __str__(self) -> str:
        return self.name if self.revision is None else f"{self.name} at {self.revision}"

    @property
    def url(self) -> str:
        """The address of the repository's page."""
        return f"{self._api.endpoint}/{self.name}"

    def create(self, private: bool) -> None:
        """Create the repository, and its branch, unless they exist; raises DeepThinkError if the hub refuses."""
        with self._errors():
            self._api.create_repo(self.name, private=private or None, exist_ok=True)
            if self.revision is not None:
                self._api.create_branch(self.name, branch=self.revision, exist_ok=True)

    def files(self) -> dict[str, RepoSibling]:
        """The files of the newest commit; raises DeepThinkError if there is no such repository or no connection."""
        with self._errors():
            info = self._api.model_info(self.name, revision=self.revision, files_metadata=True)
            self.commit_id = info.sha
            return {each.rfilename: each for each in info.siblings or ()}

    def commit(self, files: Mapping[str, Path | bytes], deleted: Collection[str], message: str) -> str:
        """Write and delete files in one commit, and return its address; raises DeepThinkError if that fails."""
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        operations: list[Any] = [CommitOperationDelete(path) for path in deleted]
        with self._errors():
            operations += [
                CommitOperationAdd(path, content if isinstance(content, bytes) else str(content))
                for path, content in files.items()
            ]
            info = self._api.create_commit(self.name, operations, commit_message=message, revision=self.revision)
        return str(info.commit_url)

    def download(self, file: RepoSibling, folder: Path) -> None:
        """Download one of the `files` into a folder, past the cache, and compare it with what the hub records.

        Raises DeepThinkError if that fails, and as soon as the file is larger than it is listed.
        """
        name, size = file.rfilename, file.size or 0
        with self._errors():
            bar = _limited(name, size, self.damaged)
            self._api.hf_hub_download(self.name, name, revision=self.commit_id, local_dir=folder, tqdm_class=bar)
        path = folder / name
        if path.is_symlink() or path.stat().st_size != size:
            raise self.damaged(f"{name} is not of the {size:,} bytes that the hub records")
        if file.lfs is not None:
            with open(path, "rb") as content:
                digest = hashlib.file_digest(content, "sha256").hexdigest()
            if digest != file.lfs.sha256:
                raise self.damaged(f"the SHA-256 of {name} is not the one that the hub records")

    def damaged(self, reason: str) -> DeepThinkError:
        """The error for files that differ from the hub's record."""
        return DeepThinkError(f"{self}: damaged or changed: {reason}; nothing was written")

    @property
    def _api(self) -> HfApi:
        from huggingface_hub import HfApi

        return HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None, library_name="deepthink")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise errors of the hub's library as a DeepThinkError with a way out."""
        import huggingface_hub  # noqa: F401  imported before its settings are changed

        try:
            with quiet_libraries():
                yield
        except (MemoryError, DeepThinkError):
            raise
        except Exception as error:  # the library raises many types
            if isinstance(error, OSError) and error.errno is not None and not is_unreachable(error):
                raise
            raise DeepThinkError(f"{self}: {_reason(error)}") from error


def _limited(name: str, size: int, damaged: Callable[[str], DeepThinkError]) -> Any:
    """A progress bar for the download of a file: the library tells it of every part before the part is written."""
    from huggingface_hub import utils

    bar: Any = utils.tqdm  # type: ignore[attr-defined]

    class Limited(bar):  # type: ignore[misc]
        received = 0

        def update(self, n: float | None = 1) -> Any:
            self.received += int(n or 0)
            if self.received > size:
                raise damaged(f"{name} is larger than the {size:,} bytes that the hub records")
            return super().update(n)

        def update_transfer(self, n: float) -> None:
            """Bytes from the network, which may be more than the file's bytes."""

        def set_transfer_postfix_str(self, *_: Any, **__: Any) -> None:
            """Nothing is shown."""

    return Limited


def _reason(error: Exception) -> str:
    """The failure, and the way out."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    status = getattr(getattr(error, "response", None), "status_code", None)
    if is_unreachable(error):
        forbidding = forbidden_by(False)
        lifted = "check the connection" if forbidding is None else f"unset {forbidding}"
        return f"the hub cannot be reached; {lifted}, and try again"
    if "RevisionNotFoundError" in kinds:
        return f"no such branch, tag or commit; check {option('revision')}"
    if "RepositoryNotFoundError" in kinds and "GatedRepoError" not in kinds:
        return "no such repository, or it is private; check the name, or log in with hf auth login"
    if "GatedRepoError" in kinds or status in (401, 403):
        return "the hub denies access; log in with hf auth login, or set HF_TOKEN, as a user who has it"
    reason = " ".join(str(error).split())[:200]
    return f"the hub answered with an error ({type(error).__name__}: {reason}); try again later"
