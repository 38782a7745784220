"""The command `serve`: what clients get over a socket, what is refused, and how it stops."""

import asyncio
import base64
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tiny_bert import write_model

pytest.importorskip("fastapi", reason="fastapi is not installed (see requirements-test.txt)")

from coder_jax import TermEncoder
from coder_jax.__main__ import main
from coder_jax.commands import serve, web_app
from coder_jax.mapping.coded_list import CODED_COLUMNS
from data_pipeline.flags import parsed
from data_pipeline.process import BadInput

DICTIONARY = (
    "term\tconcept\tvocabulary\tcode\n"
    "heart attack\tC1\tMSH\tD009203\n"
    "myocardial infarction\tC1\tMSH\tD009203\n"
    "renal failure\tC2\tMSH\tD051437\n"
    "pain\tC3\tMSH\tD010146\n"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "tiny"
    write_model(folder)
    return folder


@pytest.fixture(scope="module")
def dictionary(tmp_path_factory):
    path = tmp_path_factory.mktemp("dictionary") / "terms.tsv"
    path.write_text(DICTIONARY)
    return path


class Running:
    """A server in a process of its own, on a free port."""

    def __init__(self, repo, *arguments: object):
        command = [sys.executable, "-m", "coder_jax", "serve", "--port", "0", *arguments]
        self.process = subprocess.Popen(
            [*map(str, command)],
            cwd=repo,
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        self.said, found = "", None
        while found is None:
            line = self.process.stderr.readline()
            assert line, f"it ended: {self.said}"
            self.said += line
            found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        self.port = int(found[1])
        self.address = found[0]

    def ask(self, path: str, content: object = None) -> tuple[int, dict]:
        """(status, what it said) of a request; with content, a POST of JSON."""
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        request = urllib.request.Request(
            self.address + path,
            None if content is None else body,
            {"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """The exit status after a signal."""
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=60)
        self.said += said
        return self.process.returncode


@pytest.fixture(scope="module")
def servers():
    running: list[Running] = []
    yield running
    for one in running:
        one.process.kill()
        one.process.communicate()


@pytest.fixture
def server(servers, repo, model, dictionary):
    """A server that runs: the last one, unless a test has stopped it."""
    if not servers or servers[-1].process.poll() is not None:
        encoder = ("--model", model, "--name", "tiny", "--pooling", "mean")
        servers.append(Running(repo, *encoder, "--dictionary", dictionary))
    return servers[-1]


def test_the_rows_are_those_of_the_file(server):
    status, said = server.ask(
        "/normalize", {"terms": ["Heart attack", "no pain", "n/a", "acute renal failures"]}
    )
    assert status == 200
    exact, denied, nothing, near = (rows[0] for rows in said["answers"])
    assert list(exact) == ["mention", *CODED_COLUMNS]
    assert exact | {"matched_term": "", "preferred_name": ""} == {
        **{"mention": "Heart attack", "concept": "C1", "preferred_name": "", "code": "D009203"},
        **{"vocabulary": "MSH", "semantic_type": "", "matched_term": "", "similarity": 1.0},
        **{"confidence": None, "rank": 1, "status": "exact", "ties": 0, "reason": ""},
        "context": "",
    }
    assert (exact["matched_term"], exact["preferred_name"]) == ("heart attack", "heart attack")
    assert (denied["concept"], denied["status"], denied["context"]) == ("", "no answer", "negated")
    assert (nothing["concept"], nothing["reason"]) == ("", "a placeholder")
    assert (near["status"], near["mention"]) == ("near", "acute renal failures")
    assert 0 < near["similarity"] < 1


def test_more_concepts_of_each_term(server):
    _, said = server.ask("/normalize", {"terms": ["pain", "renal failure"], "k": 3})
    assert [[row["rank"] for row in rows] for rows in said["answers"]] == [[1, 2, 3]] * 2
    assert [rows[0]["concept"] for rows in said["answers"]] == ["C3", "C2"]


def test_the_nearest_concepts_and_terms(server, model, dictionary):
    encoder = TermEncoder.from_pretrained(model, "mean")
    _, said = server.ask("/search", {"terms": ["attack of the heart"], "k": 2})
    (matches,) = encoder.normalize(["attack of the heart"], dictionary, 2)
    assert said["answers"] == [
        [
            {
                **{"concept": match.concept, "matched_term": match.term, "rank": rank},
                "preferred_name": {"C1": "heart attack", "C2": "renal failure", "C3": "pain"}[
                    match.concept
                ],
                "similarity": round(match.similarity, 4),
            }
            for rank, match in enumerate(matches, start=1)
        ]
    ]
    _, said = server.ask("/search", {"terms": ["pain"], "k": 99, "by": "terms"})
    (rows,) = said["answers"]
    assert rows[0] == {
        **{"concept": "C3", "preferred_name": "pain", "matched_term": "pain"},
        **{"similarity": 1.0, "rank": 1},
    }
    assert sorted(row["concept"] for row in rows) == ["C1", "C1", "C2", "C3"]


def test_a_client_of_openai_s_gets_the_encoder_s_vectors(server, model):
    openai = pytest.importorskip("openai", reason="openai is not installed")
    terms = ["heart attack", "pain", "", "µ ☃"]
    vectors = TermEncoder.from_pretrained(model, "mean").encode(terms)
    with openai.OpenAI(base_url=f"{server.address}/v1", api_key="any", max_retries=0) as client:
        for form in ("float", "base64"):
            found = client.embeddings.create(
                model="tiny", input=terms, encoding_format=form, user="somebody"
            )
            got = [one.embedding for one in found.data]
            if form == "base64":
                got = [np.frombuffer(base64.b64decode(one), "<f4") for one in got]
            np.testing.assert_allclose(np.array(got, np.float32), vectors, atol=1e-5)
            assert [one.index for one in found.data] == [0, 1, 2, 3]
        alone = client.embeddings.create(model="tiny", input="heart attack", dimensions=32)
        np.testing.assert_allclose(alone.data[0].embedding, vectors[0], atol=1e-5)
        assert alone.usage.prompt_tokens == alone.usage.total_tokens == 4  # [CLS] and [SEP], too
        assert [one.id for one in client.models.list()] == ["tiny"]
        assert client.models.retrieve("tiny").owned_by == "coder_jax"
        with pytest.raises(openai.NotFoundError) as error:
            client.embeddings.create(model="text-embedding-3-small", input="pain")
        assert error.value.code == "model_not_found" and error.value.param == "model"
        with pytest.raises(
            openai.BadRequestError, match="expected 32, the server.s own: leave it out"
        ):
            client.embeddings.create(model="tiny", input="pain", dimensions=16)
        with pytest.raises(openai.BadRequestError, match="check_embedding_ctx_length=False"):
            client.embeddings.create(model="tiny", input=[[1, 2, 3]])
        with pytest.raises(openai.BadRequestError, match="expected at least one"):
            client.embeddings.create(model="tiny", input=[])


@pytest.mark.parametrize(
    ("path", "content", "status", "message"),
    [
        ("/normalize", {"terms": "pain"}, 422, "terms: Input should be a valid list"),
        ("/normalize", {"terms": ["pain", 3]}, 422, "terms.1: Input should be a valid string"),
        ("/normalize", {"term": ["pain"]}, 422, "terms: Field required; term: Extra inputs"),
        ("/normalize", {"terms": ["pain"], "k": 0}, 422, "k: Input should be greater than or"),
        ("/normalize", b'{"terms": ["\\ud800"]}', 422, r"terms\[0\]: found half of a character"),
        ("/normalize", b'{"terms": [', 422, "found no JSON object; expected one, with the header"),
        ("/normalize", b'"pain"', 422, "found no JSON object"),
        ("/normalize", {"terms": ["x" * 40_000]}, 422, r"terms\[0\]: found 40,000 characters"),
        ("/search", {"terms": ["pain"], "by": "x"}, 422, "by: Input should be 'concepts' or"),
        ("/v1/embeddings", {"model": "tiny"}, 400, "input: Field required"),
        ("/v1/embeddings", {"model": "tiny", "input": [None]}, 400, "input: found something else"),
        ("/v1/embeddings", {"model": "tiny", "input": ["a", 1]}, 400, "found numbers of tokens"),
        ("/v1/embeddings", {"model": "tiny", "input": ["a"] * 2049}, 413, "found 2,049 terms"),
        ("/normalize", {"terms": ["pain"] * 2049}, 413, "found 2,049 terms; expected at most"),
        ("/normalize", {"terms": ["x" * 9_000_000]}, 413, "the request has more than 8,000,000"),
        ("/nowhere", None, 404, "Not Found"),
        ("/normalize", None, 405, "Method Not Allowed"),
    ],
)
def test_what_is_wrong_with_a_request(server, path, content, status, message):
    found, said = server.ask(path, content)
    assert (found, list(said)) == (status, ["error"])
    assert re.match(message, said["error"]["message"]), said
    assert said["error"]["type"] == "invalid_request_error"


def test_its_health(server, dictionary):
    assert server.ask("/health") == (
        200,
        {
            **{"status": "ok", "model": "tiny", "width": 32, "dictionary": str(dictionary)},
            **{"terms": 4, "waiting": 0},
        },
    )
    head = urllib.request.Request(f"{server.address}/health", method="HEAD")
    with urllib.request.urlopen(head, timeout=60) as answer:
        assert (answer.status, answer.read()) == (200, b"")
    assert [*server.ask("/openapi.json")[1]["paths"]["/health"]] == ["get"]


def test_many_clients_at_once_get_each_their_own(server):
    terms = {"heart attack": "C1", "renal failure": "C2", "PAIN": "C3", "n/a": ""}

    def ask(number):
        mention = list(terms)[number % 4]
        _, said = server.ask("/normalize", {"terms": [mention] * (1 + number)})
        return {(row["mention"], row["concept"]) for (row,) in said["answers"]}, mention

    with ThreadPoolExecutor(16) as clients:
        for found, mention in clients.map(ask, range(64)):
            assert found == {(mention, terms[mention])}


@pytest.mark.slow
def test_a_request_that_has_come_is_answered_before_the_end(server):
    body = b'{"terms": ["pain"]}'
    head = f"POST /normalize HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
    head += "Content-Type: application/json\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        client.sendall(head.encode() + body[:5])
        assert server.ask("/health")[0] == 200  # by now the first one is being read
        status: list[int] = []
        stopping = threading.Thread(target=lambda: status.append(server.stop()))
        stopping.start()
        while True:  # until it takes no more
            try:
                socket.create_connection(("127.0.0.1", server.port), timeout=60).close()
            except OSError:
                break
        client.sendall(body[5:])
        answer = b"".join(iter(lambda: client.recv(1 << 16), b""))
    stopping.join()
    assert answer.startswith(b"HTTP/1.1 200") and b'"concept":"C3"' in answer
    assert status == [0] and "SIGTERM: stopping" in server.said and "Traceback" not in server.said


# -------------------------------------------------------------------------------------------------
# What waits is computed together, and a short request does not wait for all of a long one.


def rounds_of(*requests: tuple[list[str], str], fail: str = ""):
    """What comes of requests that wait together, and the strings of each round."""
    rounds: list[tuple[str, list[str]]] = []
    ended: list[int] = []

    def work(kind):
        def compute(strings):
            if fail in strings and fail:
                raise ValueError(fail)
            rounds.append((kind, strings))
            return [f"{kind} {one}" for one in strings]

        return compute

    async def ask():
        queue = web_app._Rounds({kind: work(kind) for kind in ("rows", "vectors")})

        async def one(number, strings, kind):
            try:
                return await queue.results(strings, kind)
            finally:
                ended.append(number)

        asked = [one(number, *request) for number, request in enumerate(requests)]
        return await asyncio.gather(*asked, return_exceptions=True)

    return asyncio.run(ask()), rounds, ended


def test_short_requests_do_not_wait_for_a_long_one():
    long = [f"long {number}" for number in range(150)]
    found, rounds, ended = rounds_of(
        (long, "rows"), (["x", "y"], "rows"), (["z"], "vectors"), ([], "rows")
    )
    assert found == [[f"rows {one}" for one in long], ["rows x", "rows y"], ["vectors z"], []]
    assert [(kind, len(strings)) for kind, strings in rounds] == [
        *[("rows", 64), ("vectors", 1), ("rows", 64), ("rows", 24)]
    ]
    assert rounds[0][1] == [*long[:62], "x", "y"]
    assert ended[-1] == 0


@pytest.mark.parametrize(
    ("left", "shares"),
    [([3], [3]), ([9], [6]), ([1, 9], [1, 5]), ([9, 9, 1], [2, 3, 1]), ([2, 2, 2], [2, 2, 2])],
)
def test_the_shares_of_a_round(left, shares):
    assert web_app._shares(left, 6) == shares


def test_what_fails_fails_alone():
    found, rounds, _ = rounds_of((["x"], "rows"), (["bad"], "rows"), (["y"], "rows"), fail="bad")
    assert found[0] == ["rows x"] and found[2] == ["rows y"]
    assert isinstance(found[1], ValueError)
    assert [strings for _, strings in rounds] == [["x"], ["y"]]


def test_too_much_that_waits_is_refused(monkeypatch):
    monkeypatch.setattr(web_app, "_MOST_WAITING", 3)
    found, _, _ = rounds_of((["x", "y"], "rows"), (["z", "z"], "rows"), (["z"], "vectors"))
    assert found[0] == ["rows x", "rows y"] and found[2] == ["vectors z"]
    assert isinstance(found[1], web_app._Refused) and found[1].status == 503


# -------------------------------------------------------------------------------------------------
# The application without a socket.


def asked_of(app, path, *parts):
    """(status, what it says) of a POST whose body comes in parts."""
    sent: list[dict] = []
    scope = {
        **{"type": "http", "method": "POST", "path": path, "raw_path": path.encode()},
        **{"query_string": b"", "headers": [(b"content-type", b"application/json")]},
        **{"http_version": "1.1", "scheme": "http", "client": None, "server": None},
    }
    waiting = [
        {"type": "http.request", "body": part, "more_body": number < len(parts)}
        for number, part in enumerate(parts, start=1)
    ]

    async def receive():
        return waiting.pop(0)

    async def send(message):
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    return sent[0]["status"], json.loads(sent[1]["body"]), len(waiting)


@pytest.fixture
def app(model):
    encoder = TermEncoder.from_pretrained(model, "mean")
    return web_app.make_app(web_app.Served("tiny", encoder, None, None, (), 10, 64))


def test_without_a_dictionary_vectors_alone(app):
    status, said, _ = asked_of(app, "/normalize", b'{"terms": ["pain"]}')
    assert status == 404 and "start it with --dictionary" in said["error"]["message"]
    status, said, _ = asked_of(app, "/search", b'{"terms": ["pain"]}')
    assert status == 404
    status, said, _ = asked_of(app, "/v1/embeddings", b'{"model": "tiny",', b'"input": "pain"}')
    assert status == 200 and len(said["data"][0]["embedding"]) == 32


def test_a_body_in_parts_is_counted_too_and_read_to_a_limit(app):
    status, said, left = asked_of(app, "/v1/embeddings", *[b" " * 50] * 4)
    assert (status, left) == (413, 0) and "more than 64 bytes" in said["error"]["message"]
    status, _, left = asked_of(app, "/v1/embeddings", *[b" " * 64] * 100)
    assert (status, left) == (413, 100 - 17)


def test_a_defect_is_said_in_the_same_form(app, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("secret")

    monkeypatch.setattr(TermEncoder, "encode", fail)
    with pytest.raises(RuntimeError):  # for the log
        asked_of(app, "/v1/embeddings", b'{"model": "tiny", "input": "pain"}')

    def refuse(*_, **__):
        raise BadInput("the encoder gives NaN")

    monkeypatch.setattr(TermEncoder, "encode", refuse)
    status, said, _ = asked_of(app, "/v1/embeddings", b'{"model": "tiny", "input": "pain"}')
    assert status == 400 and said["error"]["message"] == "the encoder gives NaN"


def test_a_port_that_is_taken(model, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["serve", "--model", str(model), "--port", port]) == 2
    assert f"--host 127.0.0.1 --port {port}: cannot listen there" in capsys.readouterr().err
    assert main(["serve", "--model", str(model), "--port", "70000"]) == 2
    elsewhere = ["--host", "203.0.113.1"]  # an address of no machine
    assert main(["serve", "--model", str(model), *elsewhere]) == 2


def test_files_that_are_not_utf8(model, tmp_path):
    names = {"--dictionary": "term\tconcept\nMénière\tM\n", "--abbreviations": "MM\tMénière\n"}
    words = ["--model", str(model), "--pooling", "mean", "--encoding", "cp1252"]
    for option, text in names.items():
        path = tmp_path / f"{option}.tsv"
        path.write_bytes(text.encode("cp1252"))
        words += [option, str(path)]
    served = serve._served(parsed(serve.OPTIONS, words)[0])
    assert served.normalizer.answers(["MM"])[0].concept == "M"


def test_one_encoder_and_choices_with_a_dictionary(model, capsys):
    two = ["serve", "--model", str(model), "--model", "other", "--port", "0"]
    assert main(two) == 2
    assert "a server has one encoder; expected one model" in capsys.readouterr().err
    for words in (["--semantic-types", "T047"], ["--precision", "0.9"], ["--abbreviations", "x"]):
        assert main(["serve", "--model", str(model), *words, "--port", "0"]) == 2
        assert f"{words[0]}: found " in (said := capsys.readouterr().err)
        assert "expected --dictionary with it" in said


def test_other_verbs_and_help_load_no_web_server(repo):
    code = (
        "import sys, coder_jax.__main__, coder_jax.commands.normalize, coder_jax.commands.serve\n"
        "heavy = {'fastapi', 'uvicorn', 'pydantic', 'spacy', 'jax'} & {*sys.modules}\n"
        "sys.exit(', '.join(heavy) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=repo, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
