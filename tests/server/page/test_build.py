"""The built page holds all it needs, and runs nothing else."""

import gzip
import re
from pathlib import Path

import pytest

from batonflow.server.page import build, page_html
from batonflow.server.page.build import FOLDER, SOURCES, built
from batonflow.server.page.policy import policy_of
from batonflow.server.pages import content_policy


def test_a_checkout_builds_the_page_at_first_use() -> None:
    assert page_html() == built()


def test_an_installed_package_reads_the_built_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installed = tmp_path / "page.html"
    installed.write_text("<p>built</p>")
    monkeypatch.setattr(build, "PAGE", installed)
    monkeypatch.setattr(build, "SOURCES", tmp_path / "src")
    assert build.page_html.__wrapped__() == "<p>built</p>"


def test_the_page_is_small() -> None:
    assert len(gzip.compress(page_html().encode())) <= 82_000


def test_the_page_names_no_other_place() -> None:
    addresses = set(re.findall(r"[a-z]+://[^\s\"'`)]+", page_html()))
    # The name of a language, not a place.
    assert addresses == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<(?:img|iframe|object|embed|audio|video)\b|@import|url\(", page_html())


def test_no_module_makes_markup_of_text() -> None:
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|createContextualFragment"
    for module in SOURCES.glob("*.js"):
        assert not re.search(forbidden, module.read_text(encoding="utf-8")), module.name


def test_markup_has_no_style_and_no_handlers() -> None:
    markup = re.sub(r"<(script|style)\b.*?</\1>", "", page_html(), flags=re.DOTALL)
    assert not re.search(r"\s(?:style|on\w+)=", markup)


def test_the_policy_of_the_page_is_the_servers_without_connections() -> None:
    stated = re.search(r'<meta name="policy" content="([^"]+)">', page_html())
    assert stated is not None
    rules = dict(rule.split(" ", 1) for rule in stated[1].split("; "))
    of_server = dict(rule.split(" ", 1) for rule in content_policy(page_html()).split("; "))
    assert set(of_server) - set(rules) == {"connect-src", "frame-ancestors"}
    for name, allowed in rules.items():
        assert set(allowed.split()) <= set(of_server[name].split())
    assert "unsafe" not in stated[1]


def test_a_policy_may_allow_connections() -> None:
    assert "connect-src 'self'" in policy_of(["a"], ["b"], connect="'self'").split("; ")


def test_modules_are_of_a_size_to_be_read() -> None:
    for module in (*SOURCES.glob("*.js"), *FOLDER.glob("*.py")):
        lines = module.read_text(encoding="utf-8").split("\n")
        assert len(lines) < 600, module.name
        assert max(map(len, lines)) <= 160, module.name


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    (tmp_path / "index.html").write_text("<style>{{style}}</style><script>{{script}}</script>")
    (tmp_path / "style.css").write_text("/* all */\nbody {\n  margin: 0;\n}\n")
    return tmp_path


def test_modules_come_after_those_they_need(sources: Path) -> None:
    (sources / "main.js").write_text('import { one } from "./one.js";\none();\n')
    (sources / "one.js").write_text(
        'import { two } from "./two.js";\n// Says it.\nexport function one() {\n  two();\n}\n'
    )
    (sources / "two.js").write_text("/** @returns {void} */\nexport const two = () => {};\n")
    page = built(sources)
    assert page.index("const m_two") < page.index("const m_one") < page.index("const m_main")
    assert "<style>body { margin: 0; }</style>" in page
    assert "Says it" not in page
    assert "@returns" not in page
    assert "return {one};" in page


def test_modules_in_a_circle_are_refused(sources: Path) -> None:
    (sources / "main.js").write_text('import { one } from "./one.js";\n')
    (sources / "one.js").write_text('import { main } from "./main.js";\n')
    with pytest.raises(ValueError, match="main -> one -> main"):
        built(sources)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [('import one from "./one.js";\n', "in an unknown form"), ('const end = "</script>";\n', "would end")],
)
def test_what_the_builder_does_not_understand_is_refused(sources: Path, text: str, complaint: str) -> None:
    (sources / "main.js").write_text(text)
    with pytest.raises(ValueError, match=complaint):
        built(sources)
