"""A model behind HTTP: a server that classifies, and the classifier that asks it.

    python examples/http_model.py serve 8000
    MODEL_URL=http://127.0.0.1:8000 nppr assess --model examples/http_model.py:make

Images and scores travel as arrays in numpy's own format. A request that fails is repeated, each time
after a longer pause; when the server stays away the run stops, and `--resume` continues it.
"""

from __future__ import annotations

import io
import os
import sys
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import torch

import nppr

PAUSES = (0.1, 0.3, 1.0)
"""Seconds before each further try."""

TIMEOUT = 30.0


def ask(url: str, images: Any) -> Any:
    """The scores of images `(B, C, H, W)`; a server that stays away is a `ModelUnavailableError`."""
    body = io.BytesIO()
    np.save(body, images)
    for pause in (*PAUSES, None):
        try:
            with urllib.request.urlopen(url, body.getvalue(), timeout=TIMEOUT) as answer:
                return np.load(io.BytesIO(answer.read()), allow_pickle=False)
        except (urllib.error.URLError, ConnectionError, TimeoutError, ValueError) as error:
            if pause is None:
                raise nppr.ModelUnavailableError(
                    f"`model` must answer at {url}, but did not in {len(PAUSES) + 1} tries: {error}."
                ) from error
            time.sleep(pause)
    raise AssertionError("unreachable")


def make() -> nppr.ArrayModel:
    """The classifier: it asks the server at MODEL_URL."""
    url = os.environ.get("MODEL_URL", "http://127.0.0.1:8000")
    return nppr.ArrayModel(lambda images: ask(url, images), classes=10, batch=512)


class Handler(BaseHTTPRequestHandler):
    """Answers a POST of images with the scores of the demo's network."""

    network = nppr.load_classifier("digits-cnn")

    def do_POST(self) -> None:
        """Classify."""
        length = int(self.headers["Content-Length"])
        images = np.load(io.BytesIO(self.rfile.read(length)), allow_pickle=False)
        with torch.inference_mode():
            scores = self.network.forward(torch.from_numpy(images)).numpy()
        body = io.BytesIO()
        np.save(body, scores)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body.getvalue())

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def serve(port: int) -> ThreadingHTTPServer:
    """A server at this port of this machine, 0 for any that is free."""
    module = Handler.network.module
    assert module is not None
    module.eval()
    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] != "serve":
        sys.exit(__doc__)
    serve(int(sys.argv[2])).serve_forever()
