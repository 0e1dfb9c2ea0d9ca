"""A chat bot on a language model: it answers several quick messages at once, and begins again when it is corrected.

    COLLECT=messages INTERRUPT=on make run BOT=examples.llm_bot:handle

Without MODEL_URL, the answers come from examples/fake_model.py. With it, from any server that has OpenAI's
`/v1/chat/completions`: set MODEL_URL, and MODEL and MODEL_KEY if it asks for them.
"""

import json
import os
from collections.abc import Iterator
from functools import cache
from typing import Any

import requests

from chatlanes import Context

#: Messages of a conversation that the model is told again.
REMEMBERED = 20


def handle(ctx: Context) -> None:
    if not ctx.text:
        return
    if ctx.text == "/start":
        ctx.reply("Send me something. I answer several quick messages at once. A newer message stops my answer.")
        return
    messages = [*ctx.session.get("messages", []), {"role": "user", "content": ctx.text}]
    with ctx.stream(on_interrupt="delete") as answer:
        for token in tokens(messages):
            answer.write(token)
    messages.append({"role": "assistant", "content": answer.text})
    ctx.session["messages"] = messages[-REMEMBERED:]


def tokens(messages: list[dict[str, str]]) -> Iterator[str]:
    """The model's answer, in pieces. Raises requests.RequestException."""
    asked: dict[str, Any] = {"model": os.environ.get("MODEL", "default"), "messages": messages, "stream": True}
    headers = {"Authorization": f"Bearer {os.environ.get('MODEL_KEY', 'none')}"}
    url = f"{model_url()}/v1/chat/completions"
    with requests.post(url, json=asked, headers=headers, stream=True, timeout=(5, 60)) as response:
        response.raise_for_status()
        response.encoding = "utf-8"
        for line in response.iter_lines(chunk_size=None, decode_unicode=True):
            data = line.removeprefix("data: ")
            if data == line or data == "[DONE]":
                continue
            yield json.loads(data)["choices"][0]["delta"].get("content") or ""


@cache
def model_url() -> str:
    """MODEL_URL, or the address of a fake model that is started in this process."""
    if url := os.environ.get("MODEL_URL"):
        return url.rstrip("/")
    from examples import fake_model  # not needed with a real model

    return fake_model.start()
