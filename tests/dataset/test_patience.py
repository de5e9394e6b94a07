"""An outage is waited for, said once, and not for ever; what waiting does not mend is raised at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill.dataset import patience as module
from draftmill.dataset.objects import StorageFault
from draftmill.dataset.patience import FIRST_PAUSE_S, LONGEST_PAUSE_S, SAID_AFTER, START_S, Patience, pause_s
from draftmill.progress import Rows

LIMIT_S = 600.0


class Heard:
    """A listener that keeps what it was told."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def stage(self, text: str) -> None:
        self.texts.append(text)

    def wait(self, text: str) -> None: ...
    def rows(self, rows: Rows) -> None: ...


class Time:
    """A clock that only a pause moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def fault(*, transient: bool = True, silent: bool = False) -> StorageFault:
    return StorageFault("away", value="503", expected="here", remedy="wait", transient=transient, silent=silent)


def answers(*results: object) -> Callable[[], object]:
    """A request that meets these in turn; exceptions are raised."""
    left: Iterator[object] = iter(results)

    def request() -> object:
        result = next(left)
        if isinstance(result, Exception):
            raise result
        return result

    return request


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def patience(time: Time, heard: Heard) -> Patience:
    return Patience(limit_s=LIMIT_S, clock=lambda: time.now_s, sleep=time.sleep, dice=lambda: 0.5, told=heard)


def test_an_answer_is_passed_on(patience: Patience, time: Time, heard: Heard) -> None:
    assert patience.persist(answers("here")) == "here"
    assert (time.now_s, heard.texts) == (0.0, [])


def test_a_single_fault_is_bridged_without_a_word(patience: Patience, time: Time, heard: Heard) -> None:
    assert patience.persist(answers(fault(), "here")) == "here"
    assert 0 < time.now_s < 1
    assert heard.texts == []


def test_an_outage_is_said_once_and_so_is_its_end(patience: Patience, heard: Heard) -> None:
    assert patience.persist(answers(*[fault()] * (SAID_AFTER + 5), "here")) == "here"
    assert [text.split(",")[0] for text in heard.texts] == [
        "away (503); waiting up to 10 min",
        "the object storage answers again",
    ]


def test_what_waiting_does_not_mend_is_raised_at_once(patience: Patience, time: Time) -> None:
    with pytest.raises(StorageFault):
        patience.persist(answers(fault(transient=False), "never asked"))
    assert time.now_s == 0.0


def test_also_in_the_middle_of_an_outage(patience: Patience) -> None:
    with pytest.raises(StorageFault) as caught:
        patience.persist(answers(fault(), fault(), fault(transient=False), "never asked"))
    assert not caught.value.transient


def test_an_object_that_is_not_there_is_an_answer(patience: Patience, heard: Heard) -> None:
    with pytest.raises(FileNotFoundError):
        patience.persist(answers(*[fault()] * SAID_AFTER, FileNotFoundError()))
    assert len(heard.texts) == 2


@pytest.mark.parametrize("takes_s", [0.0, 3.0, 10.0])
def test_silence_at_the_start_is_measured_from_the_start(patience: Patience, time: Time, takes_s: float) -> None:
    def hangs() -> object:
        time.sleep(takes_s)
        raise fault(silent=True)

    with pytest.raises(StorageFault):
        patience.persist(hangs, silence_s=START_S)
    assert START_S <= time.now_s <= START_S + takes_s + FIRST_PAUSE_S


def test_a_request_that_nobody_answers_is_said_while_it_waits(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    said = threading.Event()
    monkeypatch.setattr(module, "SILENT_S", 0.01)
    monkeypatch.setattr(heard, "stage", lambda text: (heard.texts.append(text), said.set()))

    def hangs() -> object:
        return said.wait(60)

    assert Patience(told=heard).persist(hangs, silence_s=START_S)
    assert heard.texts == ["the object storage has not answered yet; waiting up to 20 s"]


def test_an_answer_in_time_ends_the_watch(heard: Heard) -> None:
    before = threading.active_count()
    patience = Patience(told=heard)
    with pytest.raises(StorageFault):
        patience.persist(answers(fault(transient=False)), silence_s=START_S)
    assert patience.persist(answers("here"), silence_s=START_S) == "here"
    for timer in [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]:
        timer.join(60)
    assert threading.active_count() <= before
    assert heard.texts == []


@pytest.mark.parametrize(("silent", "silence_s", "limit_s"), [(1, 20.0, 20.0), (0, 20.0, LIMIT_S), (1, None, LIMIT_S)])
def test_patience_ends(patience: Patience, time: Time, silent: int, silence_s: float | None, limit_s: float) -> None:
    def away() -> object:
        raise fault(silent=bool(silent))

    with pytest.raises(StorageFault):
        patience.persist(away, silence_s=silence_s)
    assert limit_s <= time.now_s <= limit_s + LONGEST_PAUSE_S


def test_a_second_outage_has_the_whole_patience_again(patience: Patience, time: Time) -> None:
    for _ in range(3):
        first_s = time.now_s
        many = [fault()] * 40
        assert patience.persist(answers(*many, "here")) == "here"
        assert LIMIT_S / 2 < time.now_s - first_s < LIMIT_S


@given(faults=st.integers(1, 60), dice=st.floats(0, 1, exclude_max=True))
def test_pauses_grow_to_a_bound_and_never_vanish(faults: int, dice: float) -> None:
    assert 0.1 < pause_s(faults, dice) <= LONGEST_PAUSE_S
    assert pause_s(faults, dice) <= pause_s(faults + 1, dice)


def test_of_many_threads_one_speaks(heard: Heard) -> None:
    number = 8
    all_away = threading.Barrier(number)
    patience = Patience(told=heard, sleep=lambda _: None)

    def one(_: int) -> None:
        left = [*[fault()] * SAID_AFTER, "here"]

        def request() -> object:
            result = left.pop(0)
            if isinstance(result, StorageFault):
                raise result
            all_away.wait(60)  # nobody is back before all have said that they are away
            return result

        patience.persist(request)

    with ThreadPoolExecutor(number) as pool:
        list(pool.map(one, range(number)))
    assert len(heard.texts) == 2


def test_who_waits_is_woken_by_stop() -> None:
    patience, waiting = Patience(), threading.Event()

    def away() -> object:
        waiting.set()
        raise fault()

    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(patience.persist, away)
        assert waiting.wait(60)
        patience.stop()
        with pytest.raises(StorageFault):
            call.result(60)
        with pytest.raises(StorageFault):
            patience.persist(answers(fault(), "never asked"))
        assert patience.persist(answers("what needs no waiting goes on")) == "what needs no waiting goes on"
