"""Encodes the parameters of a call as JSON, or as a form if it uploads files or holds JSON text.

Files may be a parameter (`photo=Path("cat.png")`) or inside one (the `media` of an album, sent as `attach://…`), and
are read into memory whole. Frameworks encode lists and objects as JSON text, which the Bot API accepts only in a form,
so a call with JSON text is sent as a form.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

Upload = tuple[str, bytes]


class Request(NamedTuple):
    """The arguments for `requests`. `data` is the form's fields or the JSON body; only a form has files."""

    data: bytes | dict[str, str]
    files: dict[str, Upload]

    @property
    def headers(self) -> dict[str, str]:
        """The content type of a JSON body; `requests` sets that of a form."""
        return {"Content-Type": "application/json"} if isinstance(self.data, bytes) else {}


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
    """File name and content. Telegram requires a name and detects some file types by it."""
    if isinstance(value, Path):
        return value.name, value.read_bytes()
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
