"""The session of a run: no hidden limits, a key only from the environment."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from draftmill.errors import RecipeError
from draftmill.generation.http import KEEPALIVE_S, open_http
from draftmill.recipe import Recipe
from draftmill.serving.facade import KEEPALIVE_S as SERVERS_KEEPALIVE_S

KEY = "DRAFTMILL_TEST_KEY"


async def test_no_limit_below_what_is_in_flight_and_no_total_timeout(recipe_of: Callable[..., Recipe]) -> None:
    engine = recipe_of(["http://a", "http://b"], in_flight=300).engine
    async with open_http(engine) as http:
        assert http.connector is not None
        assert http.connector.limit >= 600
        assert http.connector.limit_per_host == 0
        assert (http.timeout.total, http.timeout.sock_read) == (None, None)
        assert http.timeout.sock_connect is not None
        assert "Authorization" not in http.headers
    assert KEEPALIVE_S < SERVERS_KEEPALIVE_S


@pytest.mark.parametrize("value", ["sekret", "sekret\n", "  sekret "])
async def test_the_key_comes_from_the_environment(
    recipe_of: Callable[..., Recipe], monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv(KEY, value)
    async with open_http(recipe_of(["http://a"], api_key_env=KEY).engine) as http:
        assert http.headers["Authorization"] == "Bearer sekret"


@pytest.mark.parametrize("value", [None, "", " \n", "two\nlines", "schlüssel"])
async def test_a_variable_without_a_key_is_refused_without_showing_it(
    recipe_of: Callable[..., Recipe], monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    if value is None:
        monkeypatch.delenv(KEY, raising=False)
    else:
        monkeypatch.setenv(KEY, value)
    with pytest.raises(RecipeError) as refused:
        open_http(recipe_of(["http://a"], api_key_env=KEY).engine)
    assert refused.value.value == KEY
    assert "lines" not in str(refused.value)
    assert "schlüssel" not in str(refused.value)
