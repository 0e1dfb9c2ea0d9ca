"""Puts the parameters of a call into a request: JSON, or a form when there is something to upload.

Frameworks write lists and objects as JSON text, which the Bot API expects in a form: a JSON body would hold it as a
string. Such a call is sent as a form, as the framework does.

Promises that files may stand anywhere: as a parameter (`photo=Path("cat.png")`), or inside one (the `media` of an
album), where the form names them `attach://…` as Telegram wants it. Reads files whole.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

Upload = tuple[str, bytes]


class Request(NamedTuple):
    """What `requests` is given. `data` is the form's fields, or the JSON text. Only a form has files."""

    data: bytes | dict[str, str]
    files: dict[str, Upload]

    @property
    def headers(self) -> dict[str, str]:
        """`requests` itself names a form."""
        return {"Content-Type": "application/json"} if isinstance(self.data, bytes) else {}


def encode(params: dict[str, Any]) -> Request:
    """Parameters that are None are left out. Raises TypeError or ValueError for what JSON cannot say."""
    given = {name: value for name, value in params.items() if value is not None}
    files = {name: _upload(name, value) for name, value in given.items() if _is_file(value)}
    fields = {name: _attached(value, files) for name, value in given.items() if name not in files}
    if files or _holds_json_text(fields):
        return Request({name: _text(value) for name, value in fields.items()}, files)
    return Request(_json(fields).encode(), {})


def _is_file(value: Any) -> bool:
    return isinstance(value, bytes | bytearray | memoryview | Path) or hasattr(value, "read")


def _upload(name: str, value: Any) -> Upload:
    """File name and content. Telegram wants a name, and tells some kinds of file by it."""
    if isinstance(value, Path):
        return value.name, value.read_bytes()
    if isinstance(value, bytes | bytearray | memoryview):
        return name, bytes(value)
    own_name, content = getattr(value, "name", None), value.read()
    named = Path(own_name).name if isinstance(own_name, str) and own_name else name
    return named, content.encode() if isinstance(content, str) else bytes(content)


def _attached(value: Any, files: dict[str, Upload]) -> Any:
    """The value with the files inside it taken out into `files`."""
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
    """Text that begins and ends like an object or a list. A message that does so is as well sent in a form."""
    texts = [value for value in fields.values() if isinstance(value, str)]
    if not any(text.startswith(("{", "[")) and text.endswith(("}", "]")) for text in texts):
        return False
    try:
        return bool("".join(texts).encode())
    except UnicodeEncodeError:  # half an emoji, which only JSON can say
        return False


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


#: The standard library's: what it writes is known again by the journal of an earlier run, which may have been another
#: version's; and it takes half an emoji.
_json = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
