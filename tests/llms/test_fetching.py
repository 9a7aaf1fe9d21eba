"""Addresses that messages name: what is fetched of them, from where, and within which bounds."""

import asyncio
import datetime as dt
import socket
import ssl
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from batonflow import tools
from batonflow.llms import (
    Anthropic,
    AudioBlock,
    ChatMessage,
    DocumentBlock,
    ImageBlock,
    LLMRequestError,
    OpenAI,
    OpenAIResponses,
    TextBlock,
)
from batonflow.llms import fetching as module
from batonflow.llms.fetching import FetchError, FetchPolicy, afetch, fetch, fetching
from batonflow.new_runs import reading_input, served_input
from tests.llms.loopback import Answer, Loopback, Received, loopback
from tests.llms.wire import chat
from tests.llms.wire.content import Said, Text

HERE = FetchPolicy(private_addresses=True)
PDF = b"%PDF-1.7 tides"


@pytest.fixture
async def server() -> AsyncIterator[Loopback]:
    async with loopback() as told:
        yield told


def page(*body: bytes, **more: Any) -> Answer:
    return Answer(list(body), content_type="application/pdf; charset=binary", **more)


class TestAddresses:
    @pytest.mark.parametrize(
        "written",
        [
            "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
            "224.0.0.1", "255.255.255.255", "198.18.0.1", "192.0.2.1", "168.63.129.16", "::", "::1", "fe80::1",
            "fe80::1%lo", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
            "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::a00:1", "64:ff9b:1:7f00:0:100:808:808", "192.88.99.1",
            "2002:7f00:1::",
            "2001:0:4136:e378:8000:63bf:80ff:fffe",
        ],
    )  # fmt: skip
    def test_of_private_networks_are_not_public(self, written: str) -> None:
        assert not module._is_public(written)

    @pytest.mark.parametrize(
        "written", ["8.8.8.8", "93.184.215.14", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
    )
    def test_of_the_internet_are_public(self, written: str) -> None:
        assert module._is_public(written)

    @pytest.mark.parametrize(
        "host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "127.1", "[::1]", "[::ffff:127.0.0.1]", "0"]
    )
    async def test_however_they_are_written(self, server: Loopback, host: str) -> None:
        port = server.url.rpartition(":")[2]
        with pytest.raises(FetchError, match="not a public address; give the data themselves"):
            await afetch(f"http://{host}:{port}/secret")
        assert server.received == []

    @pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://example.org/x", "gopher://h/x", "http:///x", "x"])
    def test_only_of_http_and_https(self, url: str) -> None:
        with pytest.raises(FetchError, match="only http and https addresses with a host"):
            fetch(url)

    def test_one_of_several_is_enough_to_refuse(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = [(2, 1, 6, "", (ip, 80)) for ip in ("8.8.8.8", "10.0.0.1")]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        with pytest.raises(FetchError, match=r"tides\.example is 10\.0\.0\.1, which is not a public address"):
            fetch("https://tides.example/x?signature=1")


class TestHops:
    @pytest.fixture(autouse=True)
    def only_one_is_private(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Take the loopback address for a public one, and its neighbour for a private one."""
        monkeypatch.setattr(module, "_is_public", lambda written: written == "127.0.0.1")

    async def test_the_connection_goes_to_the_address_that_was_checked(
        self, server: Loopback, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A name server that answers otherwise the second time changes nothing."""
        looked_up: list[str] = []

        def resolve(host: str, port: int, **_: Any) -> Any:
            looked_up.append(host)
            return [(2, 1, 6, "", ("127.0.0.1" if len(looked_up) == 1 else "127.0.0.2", port))]

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        server.answers = [page(PDF)]
        port = server.url.rpartition(":")[2]
        found = await afetch(f"http://tides.example:{port}/leaflet?year=1")
        assert found.data == PDF
        assert looked_up == ["tides.example"]
        [request] = server.received
        assert (request.path, request.headers["host"]) == ("/leaflet?year=1", f"tides.example:{port}")

    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    async def test_a_redirect_to_a_private_address_is_refused(self, server: Loopback, status: int) -> None:
        port = server.url.rpartition(":")[2]
        server.answers = [Answer([], status=status, headers={"location": f"http://127.0.0.2:{port}/secret"})]
        with pytest.raises(FetchError, match=r"127\.0\.0\.2 is not a public address"):
            await afetch(f"{server.url}/begin")
        assert [one.path for one in server.received] == ["/begin"]

    async def test_a_redirect_to_a_file_is_refused(self, server: Loopback) -> None:
        server.answers = [Answer([], status=302, headers={"location": "file:///etc/passwd"})]
        with pytest.raises(FetchError, match="only http and https"):
            await afetch(server.url)

    async def test_redirects_are_followed_up_to_a_number(self, server: Loopback) -> None:
        def answer(request: Received) -> Answer:
            number = int(request.path[1:])
            return Answer([], status=302, headers={"location": f"/{number + 1}"}) if number < 6 else page(PDF)

        server.answers = answer
        assert (await afetch(f"{server.url}/1")).data == PDF
        with pytest.raises(FetchError, match="more than 5 redirects"):
            await afetch(f"{server.url}/0")


class TestBounds:
    async def test_a_body_that_is_too_long(self, server: Loopback) -> None:
        policy = FetchPolicy(private_addresses=True, max_bytes=10_000)
        server.answers = [page(*[b"x" * 1000] * 10), page(*[b"x" * 1000] * 1000)]
        assert len((await afetch(server.url, policy)).data) == 10_000
        with pytest.raises(FetchError, match="more than 10,000 bytes"):
            await afetch(server.url, policy)
        await server.connections[1].left.wait()

    @pytest.mark.parametrize(
        "answer", [page(*[b"x"] * 1000, pause=0.02), page(b"x", hangs=True), page(head=False, hangs=True)]
    )
    async def test_a_body_that_takes_too_long(self, server: Loopback, answer: Answer) -> None:
        server.answers = [answer]
        with pytest.raises(FetchError, match=r"more than 0\.3 s"):
            await afetch(server.url, FetchPolicy(private_addresses=True, seconds=0.3))
        await server.connections[0].left.wait()

    async def test_a_body_that_ends_too_early_is_not_taken_for_a_whole_one(self) -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nshort")
            await writer.drain()
            writer.close()

        serving = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with serving:
            port = serving.sockets[0].getsockname()[1]
            with pytest.raises(FetchError, match="995 bytes too early"):
                await afetch(f"http://127.0.0.1:{port}/x", HERE)

    async def test_what_is_left_of_a_failure(self, server: Loopback) -> None:
        server.answers = [page(b"gone", status=404), page(b"x", breaks=True)]
        for words in ("HTTP status 404", "IncompleteRead"):
            with pytest.raises(FetchError, match=words) as caught:
                await afetch(f"{server.url.replace('//', '//user:word@')}/x?signature=secret", HERE)
            assert "secret" not in str(caught.value)
            assert "word" not in str(caught.value)

    async def test_a_name_that_takes_too_long_to_look_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = threading.Event()
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found.wait(20))
        try:
            with pytest.raises(FetchError, match=r"more than 0\.2 s"):
                await afetch("http://tides.example/x", FetchPolicy(seconds=0.2))
        finally:
            found.set()


class TestWriting:
    @pytest.mark.parametrize(
        ("written", "sent"),
        [
            ("/a b?c d", "/a%20b?c%20d"),
            ("/Küste/潮?q=ü", "/K%C3%BCste/%E6%BD%AE?q=%C3%BC"),
            ("/a%20b%2Fc?x=%C3%BC&y=1+2", "/a%20b%2Fc?x=%C3%BC&y=1+2"),
            ("/a\x0bb", "/a%0Bb"),
            ("/a\r\nHost: x", "/aHost:%20x"),
        ],
    )
    async def test_a_path_is_sent_in_percent_signs(self, server: Loopback, written: str, sent: str) -> None:
        server.answers = [page(PDF)]
        await afetch(server.url + written, HERE)
        assert [one.path for one in server.received] == [sent]

    async def test_a_redirect_in_utf_8_is_followed(self, server: Loopback) -> None:
        server.answers = [Answer([], status=302, headers={"location": "/Küste"}), page(PDF)]
        await afetch(server.url, HERE)
        assert server.received[-1].path == "/K%C3%BCste"

    async def test_a_host_is_looked_up_and_named_in_ascii(
        self, server: Loopback, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        looked_up: list[str] = []

        def resolve(host: str, port: int, **_: Any) -> Any:
            looked_up.append(host)
            return [(2, 1, 6, "", ("127.0.0.1", port))]

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        server.answers = [page(PDF)]
        port = server.url.rpartition(":")[2]
        await afetch(f"http://küste.example:{port}/", HERE)
        assert looked_up == ["xn--kste-0ra.example"]
        assert server.received[0].headers["host"] == f"xn--kste-0ra.example:{port}"

    def test_a_host_that_cannot_be_one_is_refused_in_words(self) -> None:
        with pytest.raises(FetchError, match=r"cannot fetch http://ü\.\.example/: its host"):
            fetch("http://ü..example/")


async def test_certificates_are_checked_for_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = _certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority, tmp_path / "key.pem")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\ntides")
        await writer.drain()
        writer.close()

    def resolve(_: str, port: int, **__: Any) -> Any:
        return [(2, 1, 6, "", ("127.0.0.1", port))]

    listening = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    port = listening.sockets[0].getsockname()[1]
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    async with listening:
        with pytest.raises(FetchError, match="certificate"):
            await afetch(f"https://tides.example:{port}/", HERE)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority))
        assert (await afetch(f"https://tides.example:{port}/", HERE)).data == b"tides"
        with pytest.raises(FetchError, match="certificate"):
            await afetch(f"https://other.example:{port}/", HERE)


def _certificate(folder: Path) -> Path:
    """A certificate of its own for tides.example."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tides.example")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("tides.example")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "key.pem").write_bytes(private)
    (folder / "certificate.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return folder / "certificate.pem"


SAID = Said((Text("At six."),))


class TestModels:
    def ask(self, url: str) -> list[ChatMessage]:
        return [ChatMessage([DocumentBlock(url=url), TextBlock(text="When?")])]

    def answers(self, server: Loopback) -> None:
        server.answers = lambda one: page(PDF) if one.method == "GET" else Answer([chat.stream(SAID)])

    async def test_an_address_of_this_machine_is_refused_with_the_names(self, server: Loopback) -> None:
        self.answers(server)
        llm = OpenAI("m", api_key="k", base_url=f"{server.url}/v1")
        with pytest.raises(FetchError, match=r"openai m: .* not a public address") as caught:
            await llm.achat(self.ask(f"{server.url}/leaflet.pdf"))
        assert isinstance(caught.value, LLMRequestError)
        assert server.received == []
        await llm.aclose()

    async def test_one_that_may_be_fetched_goes_along(self, server: Loopback) -> None:
        self.answers(server)
        llm = OpenAI("m", api_key="k", base_url=f"{server.url}/v1", fetch_urls=HERE)
        await llm.achat(self.ask(f"{server.url}/leaflet.pdf"))
        part = server.received[-1].body["messages"][0]["content"][0]
        assert part["file"]["file_data"].startswith("data:application/pdf;base64,")
        await llm.aclose()

    async def test_in_served_runs_it_is_off_unless_the_model_allows_it(self, server: Loopback) -> None:
        self.answers(server)
        ask = self.ask(f"{server.url}/leaflet.pdf")
        llm = OpenAI("m", api_key="k", base_url=f"{server.url}/v1", fetch_urls=HERE)
        with served_input(), pytest.raises(FetchError, match="allow it with fetch_urls=True on the model"):
            await llm.achat(ask)
        assert server.received == []
        allowed = HERE.model_copy(update={"served": True})
        with served_input():
            await llm.model_copy(update={"fetch_urls": allowed}).achat(ask)
        assert [one.method for one in server.received] == ["GET", "POST"]
        await llm.aclose()

    async def test_true_allows_it_in_served_runs_and_false_nowhere(self) -> None:
        ask = self.ask("http://127.0.0.1:9/leaflet.pdf")
        with served_input(), pytest.raises(FetchError, match="not a public address"):
            await OpenAI("m", api_key="k", fetch_urls=True).achat(ask)
        with pytest.raises(FetchError, match="fetching is off"):
            await OpenAI("m", api_key="k", fetch_urls=False).achat(ask)

    def test_what_the_vendor_fetches_itself_goes_to_it_as_an_address(self) -> None:
        document, picture = DocumentBlock(url="https://x.test/a.pdf"), ImageBlock(url="https://x.test/a.png")
        message = ChatMessage([document, picture])
        with fetching(False):
            sent = [
                str(OpenAI("m", api_key="k")._body(_request(ChatMessage([picture])))),
                str(OpenAIResponses("m", api_key="k")._body(_request(message))),
                str(Anthropic("m", api_key="k")._body(_request(message))),
            ]
        assert [one.count("https://x.test/a.") for one in sent] == [1, 2, 2]

    def test_the_setting_is_written_down_with_the_model(self) -> None:
        data = OpenAI("m", api_key="k", fetch_urls=FetchPolicy(seconds=3)).to_dict()
        assert OpenAI.from_dict(data, api_key="k").fetch_urls == FetchPolicy(seconds=3)


def _request(message: ChatMessage) -> Any:
    from batonflow.llms.stream import ChatRequest

    return ChatRequest(messages=[message])


class TestBlocks:
    def test_a_block_fetches_in_the_same_way(self) -> None:
        for block in (DocumentBlock(url="http://127.0.0.1:9/x"), DocumentBlock(url="https://localhost:9/x")):
            with pytest.raises(FetchError, match="not a public address"):
                block.resolve_document()
        with pytest.raises(FetchError, match="not a public address"):
            AudioBlock(url="http://[::1]:9/x").resolve_audio()

    async def test_within_a_policy_of_the_caller_s(self, server: Loopback) -> None:
        server.answers = [page(PDF)]
        with fetching(HERE):
            data = await asyncio.to_thread(DocumentBlock(url=f"{server.url}/x").resolve_document)
        assert data.read() == PDF

    def test_a_client_names_no_file(self, tmp_path: Path) -> None:
        written = {"role": "user", "blocks": [{"block_type": "document", "path": str(tmp_path)}]}
        assert ChatMessage.model_validate(written)
        with reading_input(), pytest.raises(ValidationError, match="names no files of this machine"):
            ChatMessage.model_validate(written)

    async def test_tools_have_it_too(self, server: Loopback) -> None:
        server.answers = [page(PDF)]
        found = await tools.afetch(server.url, tools.FetchPolicy(private_addresses=True))
        assert (found.data, found.content_type, found.url) == (PDF, "application/pdf", server.url)
        assert tools.fetch is fetch
