"""The web application of `serve`: mapping, search, and the embeddings of OpenAI's interface.

One thread computes. What comes in meanwhile waits, and is then computed together, so that many
clients cost little more than one. A round has a limited number of strings, shared out evenly: a
request of a few terms never waits for all of a long one.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coder_jax.encoding.encoder import EncodedDictionary, TermEncoder, nearest_concepts
from coder_jax.encoding.search import search
from coder_jax.mapping.coded_list import coded_fields
from coder_jax.mapping.context import ContextNormalizer
from data_pipeline.process import BadInput, Stopped

# Strings of a round: some tenths of a second on a CPU.
_AT_A_TIME = {"vectors": 512, "nearest": 256, "rows": 64}
_MOST_WAITING = 1 << 16  # strings; more are refused until some are done
_MOST_CHARACTERS = 1 << 15  # of a string; OpenAI's limit of 8,192 tokens is about as long
_MOST_K = 100
_DRAINED = 16  # times the limit: so much of a body that is too large is read, and thrown away
_SHOWN = 3  # things that are wrong with a request, in a message
_OPENAI = "/v1/"


@dataclass(frozen=True)
class Served:
    """What a server has.

    Attributes:
      name: by which clients ask for the encoder.
      encoder: whose vectors are given out; its terms are cleaned as the model says.
      normalizer, encoded: of the dictionary; None without one.
      codes_of: the vocabularies whose codes are told; none: all.
      most_terms, most_bytes: of a request.
    """

    name: str
    encoder: TermEncoder
    normalizer: ContextNormalizer | None
    encoded: EncodedDictionary | None
    codes_of: tuple[str, ...]
    most_terms: int
    most_bytes: int


# -------------------------------------------------------------------------------------------------
# Requests that wait, and the thread that computes them together.


class _Refused(Exception):
    """A request that is not answered: its status, and why."""

    def __init__(self, status: int, why: str, param: str | None = None, code: str | None = None):
        super().__init__(why)
        self.status, self.why, self.param, self.code = status, why, param, code


@dataclass(eq=False)
class _Job:
    """The strings of a request, and what was computed of them so far."""

    kind: tuple[Any, ...]
    strings: list[str]
    future: asyncio.Future[list[Any]]
    results: list[Any] = field(default_factory=list)

    @property
    def left(self) -> int:
        return len(self.strings) - len(self.results)


def _shares(left: Sequence[int], most: int) -> list[int]:
    """How many of each one's strings a round has: all of the short ones, and the rest evenly.

    Args:
      left: strings of each that wait.
      most: in all.
    """
    shares = [0] * len(left)
    shortest_first = sorted(range(len(left)), key=left.__getitem__)
    for place, one in enumerate(shortest_first):
        shares[one] = min(left[one], most // (len(left) - place))
        most -= shares[one]
    return shares


class _Rounds:
    """Computes what requests ask for, round by round, in a thread of its own.

    Args:
      work: by the name of a kind: from strings, and what the kind says beside its name, to a result
        for each string.
    """

    def __init__(self, work: Mapping[str, Callable[..., Sequence[Any]]]):
        self.work = work
        self.waiting: deque[_Job] = deque()
        self.thread = ThreadPoolExecutor(1, "encoder")
        self.task: asyncio.Task[None] | None = None

    async def results(self, strings: list[str], *kind: Any) -> list[Any]:
        """A result for each string.

        Args:
          strings: of a request.
          kind: the name of the work, and its arguments; what is of one kind is computed together.
        """
        waiting = sum(job.left for job in self.waiting)
        if waiting and waiting + len(strings) > _MOST_WAITING:
            raise _Refused(
                503, f"more than {_MOST_WAITING:,} terms are waiting; try again in some seconds"
            )
        job = _Job(kind, strings, asyncio.get_running_loop().create_future())
        self.waiting.append(job)
        if self.task is None or self.task.done():
            self.task = asyncio.create_task(self._go_on())
        return await job.future

    async def _go_on(self) -> None:
        while self.waiting:
            kind = self.waiting[0].kind
            jobs = [job for job in self.waiting if job.kind == kind][: _AT_A_TIME[kind[0]]]
            await self._round(jobs)
            for job in jobs:  # those with strings left come after all others
                self.waiting.remove(job)
                if not job.future.done():
                    self.waiting.append(job)

    async def _round(self, jobs: list[_Job]) -> None:
        name, *more = jobs[0].kind
        shares = _shares([job.left for job in jobs], _AT_A_TIME[name])
        parts = [
            job.strings[len(job.results) : len(job.results) + share]
            for job, share in zip(jobs, shares, strict=True)
        ]
        strings = [string for part in parts for string in part]
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(self.thread, self.work[name], strings, *more)
        except Exception as error:  # each request gets its own, in place of an answer
            if len(jobs) > 1:
                for job in jobs:
                    await self._round([job])
            elif not jobs[0].future.done():
                jobs[0].future.set_exception(error)
            return
        results = iter(found)
        for job, share in zip(jobs, shares, strict=True):
            job.results += [next(results) for _ in range(share)]
            if not job.left and not job.future.done():
                job.future.set_result(job.results)


# -------------------------------------------------------------------------------------------------
# What is computed.


class _Work(NamedTuple):
    """What a server computes of strings; a result for each."""

    served: Served

    def vectors(self, strings: list[str]) -> list[tuple[np.ndarray, int]]:
        """The vector, float32 [D], and how many tokens were read."""
        encoder = self.served.encoder
        vectors = encoder.encode(strings)
        return list(zip(vectors, encoder.token_counts(strings).tolist(), strict=True))

    def rows(self, strings: list[str], k: int) -> list[list[dict[str, Any]]]:
        """The rows of a coded list."""
        normalizer = self.served.normalizer
        assert normalizer is not None, "it was looked at before"
        vocabularies = self.served.codes_of or None
        return [
            coded_fields(answer, normalizer.dictionary, k, vocabularies)
            for answer in normalizer.answers(strings, k)
        ]

    def nearest(self, strings: list[str], k: int, by: str) -> list[list[dict[str, Any]]]:
        """The k nearest concepts, or terms, by the vectors alone."""
        normalizer, encoded = self.served.normalizer, self.served.encoded
        assert normalizer is not None and encoded is not None and encoded.encoder is not None
        vectors = encoded.encoder.encode(strings)
        found: list[list[tuple[str, str, float]]]
        if by == "concepts":
            most = min(k, encoded.num_concepts)
            found = [[*matches] for matches in nearest_concepts(vectors, encoded, most)]
        else:
            similarities, rows = search(vectors, encoded.keys, min(k, len(encoded.terms)))
            found = [
                [(encoded.concepts[row], encoded.terms[row], one) for one, row in pairs]
                for pairs in map(zip, similarities.tolist(), rows.tolist())
            ]
        about = normalizer.dictionary.about
        return [
            [
                {
                    "concept": concept,
                    "preferred_name": about(concept.partition("|")[0]).preferred,
                    "matched_term": term,
                    "similarity": round(similarity, 4),
                    "rank": rank,
                }
                for rank, (concept, term, similarity) in enumerate(matches, start=1)
            ]
            for matches in found
        ]


def warm_up(served: Served) -> None:
    """Computes once what requests will: programs are compiled for some numbers of strings."""
    work = _Work(served)
    strings = [f"warm up {number}" for number in range(_AT_A_TIME["vectors"])]
    for number in (1, 32, len(strings)):
        work.vectors(strings[:number])
    if served.normalizer is not None:
        for power in range(6):  # 32 strings; in larger rounds it matters less
            work.rows(strings[: 2**power], 1)


# -------------------------------------------------------------------------------------------------
# What is asked for. Errors have OpenAI's form everywhere.


class _OfTerms(BaseModel):
    model_config = ConfigDict(extra="forbid")

    terms: list[str] = Field(description="strings, each of which is one mention")


class _ToNormalize(_OfTerms):
    k: int = Field(1, ge=1, le=_MOST_K, description="concepts of each term, a row for each")


class _ToSearch(_OfTerms):
    k: int = Field(10, ge=1, le=_MOST_K, description="how many for each term")
    by: Literal["concepts", "terms"] = Field(
        "concepts", description="the nearest concepts, each with its nearest term, or terms"
    )


class _ToEmbed(BaseModel):  # clients send what this server needs not know, such as `user`
    model: str
    input: str | list[str | int | list[int]]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None


def _json(content: Any, status: int = 200, **headers: str) -> Response:
    return Response(msgspec.json.encode(content), status, headers, "application/json")


def _error(status: int, why: str, param: str | None = None, code: str | None = None) -> Response:
    kind = "invalid_request_error" if status < 500 else "server_error"
    error = {"message": why, "type": kind, "param": param, "code": code}
    headers = {"Retry-After": "5"} if status == 503 else {}
    return _json({"error": error}, status, **headers)


def _wrong_status(path: str) -> int:
    """The status of a request that says something wrong: OpenAI's, or the usual one."""
    return 400 if path.startswith(_OPENAI) else 422


class _BodyLimit:
    """Refuses a request with a body that is too large, before anything is made of it.

    The rest of it is read and thrown away: a client that is still sending would not read why.
    """

    def __init__(self, app: ASGIApp, most: int):
        self.app, self.most = app, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        parts: list[bytes] = []
        size, is_more = 0, True
        while is_more and size <= _DRAINED * self.most:
            message = await receive()
            if message["type"] != "http.request":  # the client has gone
                return
            part = message.get("body", b"")
            size, is_more = size + len(part), message.get("more_body", False)
            parts.append(part)
            if size > self.most:
                parts.clear()
        if size > self.most:
            why = f"the request has more than {self.most:,} bytes; send fewer terms at a time"
            await _error(413, why)(scope, receive, send)
            return
        messages = [{"type": "http.request", "body": b"".join(parts), "more_body": False}]

        async def replay() -> Message:
            return messages.pop() if messages else await receive()

        await self.app(scope, replay, send)


def make_app(served: Served) -> FastAPI:
    """The application."""
    app = FastAPI(title="coder_jax", docs_url=None, redoc_url=None)
    app.add_middleware(_BodyLimit, most=served.most_bytes)
    work = _Work(served)
    rounds = _Rounds({"vectors": work.vectors, "rows": work.rows, "nearest": work.nearest})
    started = int(time.time())
    model = {"id": served.name, "object": "model", "created": started, "owned_by": "coder_jax"}

    def checked(terms: list[str], path: str, param: str = "terms") -> list[str]:
        if len(terms) > served.most_terms:
            why = f"found {len(terms):,} terms; expected at most {served.most_terms:,} at a time"
            raise _Refused(413, why, param)
        for number, term in enumerate(terms):
            if len(term) > _MOST_CHARACTERS:
                found = f"{len(term):,} characters; expected at most {_MOST_CHARACTERS:,}"
            elif not term.isascii() and any("\ud800" <= sign <= "\udfff" for sign in term):
                found = "half of a character (a lone surrogate); expected Unicode text"
            else:
                continue
            raise _Refused(_wrong_status(path), f"{param}[{number}]: found {found}", param)
        return terms

    def needs_dictionary() -> None:
        if served.normalizer is None:
            raise _Refused(
                404, "this server has no dictionary: start it with --dictionary to map and search"
            )

    @app.get("/health")
    @app.head("/health", include_in_schema=False)  # as monitors ask
    async def health() -> Response:
        about = served.normalizer and served.normalizer.dictionary
        return _json(
            {
                "status": "ok",
                "model": served.name,
                "width": served.encoder.width,
                "dictionary": about.source if about else None,
                "terms": len(about.terms) if about else 0,
                "waiting": sum(job.left for job in rounds.waiting),
            }
        )

    @app.post("/normalize")
    async def normalize(asked: _ToNormalize) -> Response:
        needs_dictionary()
        terms = checked(asked.terms, "/normalize")
        return _json({"answers": await rounds.results(terms, "rows", asked.k)})

    @app.post("/search")
    async def search_nearest(asked: _ToSearch) -> Response:
        needs_dictionary()
        terms = checked(asked.terms, "/search")
        return _json({"answers": await rounds.results(terms, "nearest", asked.k, asked.by)})

    @app.get("/v1/models")
    async def models() -> Response:
        return _json({"object": "list", "data": [model]})

    @app.get("/v1/models/{name:path}")
    async def model_of(name: str) -> Response:
        check_name(name)
        return _json(model)

    def check_name(name: str) -> None:
        if name != served.name:
            raise _Refused(
                404,
                f"there is no model {name!r}; this is {served.name!r}",
                "model",
                "model_not_found",
            )

    @app.post("/v1/embeddings")
    async def embeddings(asked: _ToEmbed) -> Response:
        check_name(asked.model)
        width = served.encoder.width
        if asked.dimensions not in (None, width):
            why = (
                f"found {asked.dimensions} dimensions; expected {width}, the server's own: leave "
                "it out, or start the server with --width"
            )
            raise _Refused(400, why, "dimensions")
        given = [asked.input] if isinstance(asked.input, str) else asked.input
        terms = [one for one in given if isinstance(one, str)]
        if len(terms) < len(given):
            raise _Refused(
                400,
                "found numbers of tokens; expected strings, as this encoder has a tokenizer of its "
                "own (in LangChain: check_embedding_ctx_length=False)",
                "input",
            )
        if not terms:
            raise _Refused(400, "found no strings; expected at least one", "input")
        found = await rounds.results(checked(terms, _OPENAI, "input"), "vectors")
        return await asyncio.to_thread(as_openai, found, asked.encoding_format)

    def as_openai(found: list[tuple[np.ndarray, int]], form: str) -> Response:
        def written(vector: np.ndarray) -> str | list[float]:
            if form == "float":
                return vector.tolist()
            return base64.b64encode(vector.astype("<f4").tobytes()).decode()

        tokens = sum(count for _, count in found)
        return _json(
            {
                "object": "list",
                "data": [
                    {"object": "embedding", "index": index, "embedding": written(vector)}
                    for index, (vector, _) in enumerate(found)
                ],
                "model": served.name,
                "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            }
        )

    @app.exception_handler(_Refused)
    async def refused(_: Request, error: _Refused) -> Response:
        return _error(error.status, error.why, error.param, error.code)

    @app.exception_handler(RequestValidationError)
    async def not_valid(request: Request, error: RequestValidationError) -> Response:
        found = {
            ".".join(str(part) for part in one["loc"][1:]): one["msg"]
            for one in error.errors()
            if one["type"] != "json_invalid" and len(one["loc"]) > 1
        }
        why = "; ".join(f"{where}: {message}" for where, message in list(found.items())[:_SHOWN])
        if not found:
            why = (
                "found no JSON object; expected one, with the header Content-Type: application/json"
            )
        elif any(where.startswith("input.") for where in found):
            why = "input: found something else; expected a string, or a list of strings"
        return _error(_wrong_status(request.url.path), why, next(iter(found), None))

    @app.exception_handler(BadInput)
    async def bad_input(request: Request, error: BadInput) -> Response:
        return _error(_wrong_status(request.url.path), str(error))

    @app.exception_handler(Stopped)
    async def stopped(_: Request, error: Stopped) -> Response:
        return _error(503, "the server is stopping")

    @app.exception_handler(HTTPException)
    async def no_route(_: Request, error: HTTPException) -> Response:
        return _error(error.status_code, str(error.detail))

    @app.exception_handler(Exception)
    async def failed(_: Request, error: Exception) -> Response:
        return _error(500, f"the server failed ({type(error).__name__}); its log says where")

    return app
