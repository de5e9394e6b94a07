"""A template's own switches for reasoning, found by trying them.

Tokenizer, template and the recipe's variables in; out come the prompts that the
variables whose names speak of thinking give at each value. Which of them opens or
closes a block is not said here: only ids can, and the shelf of structures reads
them. The values tried are those the template itself compares the variable with
(`thinking_budget == 0`), or true and false for one it only asks about.

A variable of that name without any effect on the ids is not a switch.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser

WORDS = ("think", "reason")
"""A variable with one of them in its name may switch reasoning on and off."""

NEGATIONS = ("no_", "skip", "disable", "without")
"""A variable with one of them in its name is off where it is true: `skip_thinking`."""

OFF = ("none", "off", "disabled", "no_think", "nothink", "false")
"""Texts that mean off, as values of a switch."""

_SIGNS = frozenset("<>[]|_/{}")

VALUES_TRIED = 8
"""Of one variable: a template that compares with more than this has no simple switch."""


@dataclass(frozen=True, slots=True)
class Switch:
    """A variable at a value, and the ids this gives for the probe's one user message."""

    name: str
    value: Any
    prompt_ids: tuple[int, ...]
    tail_ids: tuple[int, ...]

    @property
    def head_ids(self) -> tuple[int, ...]:
        """The prompt without its tail: where a template writes what it asks of the model."""
        return self.prompt_ids[: len(self.prompt_ids) - len(self.tail_ids)]

    @property
    def is_off(self) -> bool:
        """Whether this value says that there is to be no reasoning."""
        if isinstance(self.value, str):
            return self.value.lower() in OFF
        return bool(self.value) is any(word in self.name.lower() for word in NEGATIONS)

    def __str__(self) -> str:
        return f"{self.name}={self.value!r}"


class _Generation(Extension):
    """transformers' {% generation %} block, which marks an answer for training and renders as what is in it."""

    tags = {"generation"}  # noqa: RUF012 (jinja2 declares it so)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


@functools.lru_cache(maxsize=8)
def _parsed(template: str) -> nodes.Template | None:
    environment = jinja2.Environment(extensions=[loopcontrols, "jinja2.ext.do", _Generation])  # noqa: S701 (never rendered)
    try:
        return environment.parse(template)
    except jinja2.TemplateError:  # rendering it will say so
        return None


def _tree(template: str) -> nodes.Template:
    return _parsed(template) or nodes.Template([], lineno=1)


@functools.lru_cache(maxsize=8)
def read_variables(template: str) -> frozenset[str] | None:
    """Every name the template takes from outside; None when it is not Jinja."""
    tree = _parsed(template)
    return None if tree is None else frozenset(meta.find_undeclared_variables(tree))


def set_variables(template: str) -> frozenset[str]:
    """Names the template gives values to by itself, somewhere."""
    return frozenset(node.name for node in _tree(template).find_all(nodes.Name) if node.ctx != "load")


@functools.lru_cache(maxsize=8)
def template_names(template: str) -> tuple[str, ...]:
    """What a template calls things by, sorted: its variables, fields and keys, and the markers in its texts.

    Not the words of its prose, which has white space around them and no sign in them.
    """
    tree = _tree(template)
    found = {node.name for node in tree.find_all(nodes.Name)} | {node.attr for node in tree.find_all(nodes.Getattr)}
    texts = [node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str)]
    found |= {text for text in texts if len(text.split()) == 1}
    prose = " ".join([*texts, *(node.data for node in tree.find_all(nodes.TemplateData))])
    return tuple(sorted(found | {word for word in prose.split() if _SIGNS & set(word)}))


@functools.lru_cache(maxsize=8)
def speaking_variables(template: str) -> dict[str, tuple[Any, ...]]:
    """Variables the template is given from outside and whose names speak of thinking, with the values to try."""
    tree = _tree(template)
    if not any(speaks(node.name) for node in tree.find_all(nodes.Name)):
        return {}
    return {name: _values(tree, name) for name in sorted(read_variables(template) or ()) if speaks(name)}


def speaks(name: str) -> bool:
    """Whether a variable of this name may switch reasoning on and off."""
    return any(word in name.lower() for word in WORDS)


def _values(tree: nodes.Template, name: str) -> tuple[Any, ...]:
    """The constants this variable is compared with; without any, or with a boolean among them, true and false."""
    found: list[Any] = []
    for compare in tree.find_all(nodes.Compare):
        if any(node.name == name for node in compare.find_all(nodes.Name)):
            for node in compare.find_all(nodes.Const):
                found += node.value if isinstance(node.value, list | tuple) else [node.value]
    if not found or any(isinstance(value, bool) for value in found):
        found = [False, True, *found]
    distinct = {repr(value): value for value in found if isinstance(value, bool | int | str) and value != ""}
    return tuple(distinct.values())[:VALUES_TRIED]
