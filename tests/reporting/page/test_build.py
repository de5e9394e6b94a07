"""The report's file: nothing in it but what was put in, no data that becomes HTML, no address to ask."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.reporting.page.build import LIBRARIES, PLOT_STYLE, SCRIPTS, page_html
from draftmill.reporting.page.packing import embedded, pack, unpack
from draftmill.reporting.pieces import TokenPiece
from tests.reporting import page_sample

PAGE = files("draftmill.reporting.page")


class Parsed(HTMLParser):
    """Tags with their attributes, and the contents of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[tuple[str, dict[str, str | None], str]] = []
        self.title = ""
        self.comments: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] in ("script", "style") and data.strip():
            self.inside.append((*self.tags[-1], data))
        if self.tags and self.tags[-1][0] == "title":
            self.title += data

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)

    def block(self, **attributes: str) -> list[str]:
        """The contents of the scripts with these attributes."""
        return [data for tag, found, data in self.inside if tag == "script" and attributes.items() <= found.items()]

    @property
    def policy(self) -> str:
        (found,) = [a["content"] for tag, a in self.tags if tag == "meta" and "http-equiv" in a]
        assert found is not None
        return found


def built(rows: list[dict[str, Any]] | None = None, **changes: Any) -> Parsed:
    rows = rows if rows is not None else [page_sample.row(n) for n in range(5)]
    return Parsed(page_html(page_sample.data(**changes), page_sample.blocks(rows, 2), page_sample.pieces()))


def hashed(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_the_policy_allows_exactly_what_is_in_the_page() -> None:
    page = built()
    rules = dict(rule.split(" ", 1) for rule in page.policy.split("; "))
    scripts = [data for tag, found, data in page.inside if tag == "script" and not found]
    styles = [data for tag, _, data in page.inside if tag == "style"]
    assert rules["default-src"] == "'none'"
    assert rules["script-src"].split() == [hashed(script) for script in scripts]
    assert rules["style-src"].split() == [hashed(style) for style in (*styles, PLOT_STYLE)]
    assert len(scripts) == len(LIBRARIES) + 1
    assert {rules[name] for name in ("base-uri", "form-action")} == {"'none'"}


def test_nothing_is_asked_of_anybody() -> None:
    for tag, attributes in built().tags:
        assert not attributes.keys() & {"src", "srcset", "action", "style"}, tag
        assert not [name for name in attributes if name.startswith("on")], tag
        assert (attributes.get("href") or "#").startswith(("#", "data:,")), tag


def test_data_and_rows_come_out_as_they_went_in() -> None:
    rows = [page_sample.row(n, reason="truncated" if n == 4 else None) for n in range(5)]
    page = built(rows)
    assert json.loads(page.block(id="data")[0]) == json.loads(json.dumps(page_sample.data()))
    assert [row for block in page.block(**{"class": "block"}) for row in unpack(block)] == rows
    index: Any = unpack(page.block(id="index")[0])
    assert [entry[0] for entry in index] == [row["key"] for row in rows]
    assert [entry[-1] for entry in index] == [0, 0, 1, 1, 2]
    assert [entry[3] for entry in index] == [None, None, None, None, "truncated"]
    pieces: Any = unpack(page.block(id="pieces")[0])
    assert pieces[str(page_sample.HALF)] == ["\u27e8E2 96\u27e9", "\u00e2\u0138", 1]


def test_hostile_data_changes_no_tag() -> None:
    hostile = page_sample.HOSTILE
    rows = [page_sample.row(0, prompt_id=hostile, detail=hostile, key=hostile, variant=hostile, reason=hostile)]
    calm = built([page_sample.row(0)])
    found = built(rows, label=hostile, dataset=hostile, recipe={hostile: hostile}, provenance={hostile: [hostile]})
    names = [tag for tag, _ in calm.tags]
    assert [tag for tag, _ in found.tags] == names
    assert found.comments == []
    assert "<img" in found.title  # as text
    assert "\x1b" not in found.title
    assert json.loads(found.block(id="data")[0])["label"] == hostile


def test_a_page_is_ascii_but_for_its_own_files() -> None:
    rows = [page_sample.row(0, prompt_id="\ud800\u202e\x00")]
    text = page_html(page_sample.data(label="\u0645\ud800"), page_sample.blocks(rows), {})
    text.encode("utf-8")  # a lone surrogate would not pass


def test_the_same_data_gives_the_same_page() -> None:
    rows = page_sample.blocks([page_sample.row(n) for n in range(3)])
    assert len({page_html(page_sample.data(), rows, page_sample.pieces()) for _ in range(2)}) == 1


def test_data_cannot_name_a_place_of_the_template() -> None:
    page = built(label="{{SCRIPTS}}{{DATA}}")
    assert json.loads(page.block(id="data")[0])["label"] == "{{SCRIPTS}}{{DATA}}"
    assert page.title.startswith("{{SCRIPTS}}{{DATA}}")


def test_what_is_not_finite_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        built(round_trip={"share": float("nan")})


def test_without_rows_and_parts_there_is_a_page() -> None:
    changes = dict.fromkeys(("drift", "course", "coverage", "round_trip", "cut_in_reasoning"))
    assert built([], **changes).block(id="data")


@given(
    st.recursive(
        st.text() | st.integers() | st.none(), lambda inside: st.lists(inside) | st.dictionaries(st.text(), inside)
    )
)
def test_packed_and_embedded_are_what_they_were(value: object) -> None:
    assert unpack(pack(value)) == value
    assert json.loads(embedded(value)) == value
    assert embedded(value).isascii()
    assert not set(embedded(value)) & set("<>&")


@pytest.mark.parametrize("name", SCRIPTS)
def test_our_scripts_set_text_only(name: str) -> None:
    script = PAGE.joinpath("js", name).read_text()
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|Function\(|fetch\(|XMLHttp|import\("
    assert not re.search(forbidden, script)
    assert "</" not in script
    assert "<!--" not in script


def test_every_script_and_only_those_are_there() -> None:
    assert sorted(SCRIPTS) == sorted(entry.name for entry in PAGE.joinpath("js").iterdir())


def test_vendored_files_are_the_packages_own() -> None:
    vendor = PAGE.joinpath("vendor")
    sums = dict(reversed(line.split()) for line in vendor.joinpath("SHA256SUMS").read_text().splitlines())
    assert sorted(sums) == sorted(LIBRARIES)
    for name, wanted in sums.items():
        assert hashlib.sha256(vendor.joinpath(name).read_bytes()).hexdigest() == wanted, name


@pytest.mark.parametrize(("name", "licence"), [("d3.min.js", "d3.LICENSE"), ("plot.umd.min.js", "plot.LICENSE")])
def test_vendored_versions_and_licences_are_told(name: str, licence: str) -> None:
    vendor = PAGE.joinpath("vendor")
    found = re.search(r" v([\d.]+) ", vendor.joinpath(name).read_text()[:100])
    assert found
    (line,) = [line for line in vendor.joinpath("README.md").read_text().splitlines() if line.startswith(f"| `{name}`")]
    assert f" {found[1]} " in line
    assert "Permission to use, copy, modify" in vendor.joinpath(licence).read_text()


def test_pieces_are_left_out_without_a_tokenizer() -> None:
    text = page_html(page_sample.data(), [], {})
    assert unpack(Parsed(text).block(id="pieces")[0]) == {}
    some = page_html(page_sample.data(), [], {7: TokenPiece("a", "b")})
    assert unpack(Parsed(some).block(id="pieces")[0]) == {"7": ["a", "b", 0]}


def test_no_two_scripts_have_one_name() -> None:
    """They share a scope, in which a second function of a name silently takes the first one's place."""
    text = "\n".join(PAGE.joinpath("js", name).read_text() for name in SCRIPTS)
    names = re.findall(r"^(?:async )?(?:function\*? |const |let )(\w+)", text, re.M)
    assert len(names) > 80
    assert sorted(set(names)) == sorted(names)
