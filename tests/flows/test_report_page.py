"""A run leaves a report page beside its manifest, and never fails for want of one."""

from __future__ import annotations

import logging
from pathlib import Path

from prefect.artifacts import Artifact

from draftmill.dataset.storage import open_storage
from draftmill.errors import DatasetError
from draftmill.generation import course, pool
from tasks import report
from tasks.receipts import artifact_key


async def test_each_manifest_has_its_page_linked_from_the_summary(mill, fake_server) -> None:
    mill.prompts(["one", "two", "three"])
    async with fake_server() as fake:
        mill.url = fake.url
        first = await mill.refresh()
        page = await Artifact.aget(artifact_key(mill.dataset, "summary"))
        unchanged = await mill.refresh()
    place = f"{mill.dataset}/reports/00000001.html"
    assert (first["page"], unchanged["page"]) == (place, None)
    assert Path(place).read_text().startswith("<!doctype html>")
    assert page is not None
    assert f"[{place}](file://{place})" in page.data
    assert open_storage(mill.dataset).list("reports") == ["reports/00000001.html"]


async def test_what_is_judged_anew_has_a_page_of_its_own(mill, fake_server) -> None:
    mill.prompts(["one", "two", "three"])
    async with fake_server() as fake:
        mill.url = fake.url
        await mill.refresh(on_truncated="keep", sampling__max_new_tokens=2)
    again = await mill.rerun(on_truncated="quarantine", sampling__max_new_tokens=2)
    assert again["page"] == f"{mill.dataset}/reports/00000002.html"
    assert Path(again["page"]).exists()


async def test_a_page_that_cannot_be_made_is_a_warning(mill, fake_server, monkeypatch, caplog) -> None:
    def refuse(*_: object) -> None:
        raise DatasetError("the disk is full", value="0 bytes", expected="some", remedy="make room")

    monkeypatch.setattr(report, "write_report", refuse)
    mill.prompts(["one"])
    async with fake_server() as fake:
        mill.url = fake.url
        with caplog.at_level(logging.WARNING, "draftmill"):
            data = await mill.refresh()
    assert (data["state"], data["page"], data["exit_code"], mill.manifest.version) == ("Completed", None, 0, 1)
    (said,) = [record.message for record in caplog.records if "no report page" in record.message]
    assert "the disk is full" in said


async def test_the_course_of_the_run_is_kept_with_what_it_made(mill, fake_server, monkeypatch) -> None:
    monkeypatch.setattr(pool, "TICK_S", 0.005)
    monkeypatch.setattr(course, "STEP_S", 0.01)
    mill.prompts([str(number) for number in range(30)])
    async with fake_server(slots=1) as fake:
        mill.url = fake.url
        await mill.refresh(engine__in_flight=2)
    points = mill.manifest.provenance["course"]["points"]
    assert points
    assert all(limit == 2 and in_flight <= 2 for *_, in_flight, limit in points)
    assert sum(in_flight for *_, in_flight, _ in points) > 0
