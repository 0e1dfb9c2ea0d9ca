"""Encodes the parameters of a call as JSON, or as a form if it uploads files or holds JSON text.

Files may be a parameter (`photo=Path("cat.png")`) or inside one (the `media` of an album, sent as `attach://…`). A
`Path` is read in pieces while it is sent; open files are read into memory whole, because a retry cannot read them
again. Frameworks encode lists and objects as JSON text, which the Bot API accepts only in a form, so a call with JSON
text is sent as a form.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from requests_toolbelt.multipart.encoder import MultipartEncoder  # type: ignore[import-untyped]

Upload = tuple[str, bytes | Path]


class Request(NamedTuple):
    """A request that can be sent repeatedly. `data`: the form's fields or the JSON body; only a form has files."""

    data: bytes | dict[str, str]
    files: dict[str, Upload]

    @contextmanager
    def opened(self) -> Iterator[tuple[dict[str, str], Any]]:
        """The headers and the body for `requests`. Raises OSError if a file cannot be opened."""
        if isinstance(self.data, bytes):
            yield {"Content-Type": "application/json"}, self.data
        elif not self.files:
            yield {}, self.data
        else:
            with ExitStack() as stack:
                files = {
                    field: (name, stack.enter_context(content.open("rb")) if isinstance(content, Path) else content)
                    for field, (name, content) in self.files.items()
                }
                form = MultipartEncoder({**self.data, **files})
                yield {"Content-Type": form.content_type}, form


def encode(params: dict[str, Any]) -> Request:
    """Encode the parameters; None is left out. Raises TypeError or ValueError for values that JSON cannot represent."""
    given = {name: value for name, value in params.items() if value is not None}
    files = {name: _upload(name, value) for name, value in given.items() if _is_file(value)}
    fields = {name: _attached(value, files) for name, value in given.items() if name not in files}
    if files or _holds_json_text(fields):
        return Request({name: _text(value) for name, value in fields.items()}, files)
    return Request(_json(fields).encode(), {})


def _is_file(value: Any) -> bool:
    return isinstance(value, bytes | bytearray | memoryview | Path) or hasattr(value, "read")


def _upload(name: str, value: Any) -> Upload:
    """File name and content. Telegram requires a name and detects some file types by it. Raises OSError."""
    if isinstance(value, Path):
        value.open("rb").close()  # a missing file fails here, before the call is in the journal
        return value.name, value
    if isinstance(value, bytes | bytearray | memoryview):
        return name, bytes(value)
    own_name, content = getattr(value, "name", None), value.read()
    named = Path(own_name).name if isinstance(own_name, str) and own_name else name
    return named, content.encode() if isinstance(content, str) else bytes(content)


def _attached(value: Any, files: dict[str, Upload]) -> Any:
    """The value with its files replaced by references; the files are added to `files`."""
    if _is_file(value):
        name = f"file{len(files)}"
        files[name] = _upload(name, value)
        return f"attach://{name}"
    if isinstance(value, dict):
        return {key: _attached(inner, files) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_attached(inner, files) for inner in value]
    return value


def _holds_json_text(fields: dict[str, Any]) -> bool:
    """True if a text begins and ends like a JSON object or list. Message text that does so is sent correctly too."""
    texts = [value for value in fields.values() if isinstance(value, str)]
    if not any(text.startswith(("{", "[")) and text.endswith(("}", "]")) for text in texts):
        return False
    try:
        return bool("".join(texts).encode())
    except UnicodeEncodeError:  # half a surrogate pair, which only a JSON body can represent
        return False


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


#: The standard library's encoder, because its output is stable: the journal compares calls with those of an
#: earlier run, which may have used another version. It also encodes half a surrogate pair.
_json = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
