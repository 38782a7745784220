"""Serve an encoder, and a dictionary, to other programs over HTTP.

Requests and answers are JSON. Several clients may ask at once: what waits is computed together.

  POST /normalize      {"terms": ["heart attack"], "k": 1}
                       -> {"answers": [[row, ...], ...]}: for each term the rows that the command
                       normalize writes, with the same columns; numbers are numbers, or null
  POST /search         {"terms": ["heart attack"], "k": 10, "by": "concepts"}
                       -> {"answers": [[row, ...], ...]}: the nearest concepts, each by its nearest
                       term, or with "by": "terms" the nearest terms; by vectors alone
  POST /v1/embeddings  as OpenAI's: input (a string or a list), encoding_format (float or base64)
  GET /v1/models       the one model, by the name that --name says
  GET /health          {"status": "ok", ...}, once the server takes requests
  GET /openapi.json    all of this for programs

/normalize and /search need --dictionary. /v1/embeddings gives vectors as `encode` does, so any
client of OpenAI's can use the encoder: its address is http://127.0.0.1:8000/v1, its key any text.

What is wrong with a request is answered as {"error": {"message": ...}}: 422 for wrong values (400
below /v1), 413 for more terms or bytes than the limits, 503 while too much is waiting.

Only programs on this machine can reach it (127.0.0.1). With --host 0.0.0.0 everybody who reaches
the machine may use it: there is no password. Put a proxy that asks for one, and encrypts, in front.

SIGTERM or Ctrl-C stops it: it answers the requests that have come, and takes no new ones.

Examples:
  python -m coder_jax serve --model runs/demo/export --dictionary runs/demo/dataset
  python -m coder_jax serve --model mine --name text-embedding-3-small --port 8001
  curl -H 'Content-Type: application/json' -d '{"terms": ["heart attack"]}' \\
      http://127.0.0.1:8000/normalize
"""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from coder_jax.commands.answering import AnswerOptions, open_normalizer
from coder_jax.commands.arguments import MODEL, Pooling, check_one_model, load_encoder
from data_pipeline.flags import Flag
from data_pipeline.process import BadInput, tell

if TYPE_CHECKING:
    from coder_jax.commands.web_app import Served

COMMON = (
    *("--model", "--dictionary", "--host", "--port", "--name", "--precision", "--context"),
    *("--dictionary-languages", "--dictionary-sources", "--semantic-types", "--pooling"),
)
_OF_ANSWERS = (  # options that nothing reads without a dictionary
    *("codes_of", "min_similarity", "precision", "language", "cutoffs", "candidates"),
    *("context_rules", "abbreviations", "dictionary_vectors", "retired_cuis"),
)
WHEN_ASKED_TO_STOP = "stopping"
_LAST_PORT = 65535
_SECONDS_TO_STOP = 60  # requests that take longer are given up


@dataclass(frozen=True, kw_only=True)
class ServeOptions(AnswerOptions):
    """The options of `serve`."""

    host: Annotated[
        str,
        Flag(
            "address to listen on; 0.0.0.0 is all of the machine's, and lets everybody in who "
            "reaches it",
            "ADDRESS",
        ),
    ] = "127.0.0.1"
    port: Annotated[int, Flag("port to listen on; 0 takes a free one", least=0)] = 8000
    name: Annotated[
        str | None,
        Flag(
            "name by which clients ask for the encoder, such as text-embedding-3-small where a "
            "program knows only OpenAI's (default: the last part of --model)",
            "NAME",
        ),
    ] = None
    encoding: Annotated[
        str | None,
        Flag(
            "encoding of the dictionary, abbreviations and context rules where they are not UTF-8, "
            "such as cp1252 (Excel)",
            "NAME",
        ),
    ] = None
    max_terms: Annotated[
        int, Flag("refuse requests of more terms than this (413)", "TERMS", least=1)
    ] = 2048
    max_bytes: Annotated[
        int, Flag("refuse requests of more bytes than this (413)", "BYTES", least=1)
    ] = 8_000_000
    models: Annotated[
        tuple[str, ...],
        Flag(
            "the encoder: a folder, such as an export, or a hub id",
            MODEL,
            name="--model",
            one_word=True,
            heading="encoder",
        ),
    ]
    pooling: Pooling = None


OPTIONS = ServeOptions


def run(options: ServeOptions) -> int:
    import uvicorn

    from coder_jax.commands.web_app import make_app, warm_up

    with _listen(options.host, options.port) as listener:
        served = _served(options)
        warm_up(served)
        config = uvicorn.Config(
            make_app(served),
            log_level="warning",
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=_SECONDS_TO_STOP,
        )
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        if not ipaddress.ip_address(host).is_loopback:
            tell(f"warning: whoever reaches {shown}:{port} may use this server, without a password")
        tell(f"{served.name}: http://{shown}:{port} (Ctrl-C stops it)")
        uvicorn.Server(config).run([listener])
    return 0


def _listen(host: str, port: int) -> socket.socket:
    """A socket that listens; clients may connect from now on, and wait.

    Raises:
      BadInput: no such address, or a port that is taken or not allowed.
    """
    if port > _LAST_PORT:
        raise BadInput(f"--port is {port}; expected 0 to {_LAST_PORT}")
    try:
        family, *_, address = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0]
        return socket.create_server((str(address[0]), port), family=family)
    except OSError as error:
        raise BadInput(
            f"--host {host} --port {port}: cannot listen there ({error}); give another --port (0: "
            "a free one) or --host"
        ) from error


def _served(options: ServeOptions) -> Served:
    """The encoder, and the dictionary if there is one."""
    from coder_jax.commands.web_app import Served
    from coder_jax.encoding.encoder import TermEncoder
    from coder_jax.models.hf_files import read_settings

    options.check_choices(options.dictionary)
    normalizer = encoded = None
    if options.dictionary:
        normalizer, of_terms = open_normalizer(options, options.encoding)
        encoded = of_terms.candidates.encoded
        # Terms of a dictionary are cleaned for a look-up; vectors are given out as `encode` does.
        looked_up = of_terms.candidates.encoder
        own = "none"  # of what sentence-transformers runs
        if looked_up.folder is not None and options.backend != "sentence-transformers":
            pooling, prompt = looked_up.settings.pooling, looked_up.settings.prompt
            own = read_settings(looked_up.folder, pooling=pooling, prompt=prompt).cleaning
        settings = looked_up.settings.changed(cleaning=options.cleaning or own)
        encoder = TermEncoder(looked_up.reader, None, settings, looked_up.report)
    else:
        for name in _OF_ANSWERS:
            if getattr(options, name) not in (None, ()):
                flag = f"--{name.replace('_', '-')}"
                raise BadInput(f"{flag}: found it alone; expected --dictionary with it")
        check_one_model(options.models, "a server has one encoder")
        encoder = load_encoder(options.model, options.pooling, options)
    return Served(
        name=options.name or Path(options.model).name or Path(options.model).resolve().name,
        encoder=encoder,
        normalizer=normalizer,
        encoded=encoded,
        codes_of=options.codes_of,
        most_terms=options.max_terms,
        most_bytes=options.max_bytes,
    )
