"""The signs that a turn of several messages is read by, in order, with their neighbours.

Of an answer on channels only the grammar's ids matter: where a header begins,
what its channel is for, where a body begins, where a message ends. They are laid
out flat over all rows, so that the grammar is asked of all of them at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from draftmill.judging.answers import LENGTH, Answers, Flags, Numbers
from draftmill.judging.markers import NOWHERE, Markers, Places, cut_off_at, first_not_blank, stands_at
from draftmill.judging.structure import Channels

Codes = npt.NDArray[np.int8]


class Sign(IntEnum):
    """What stands at a place. NOTHING: the row's start or end."""

    NOTHING = 0
    CHANNEL = 1
    MESSAGE = 2
    CLOSE = 3
    NEXT = 4
    END = 5


class Kind(IntEnum):
    """What a message is for.

    UNREAD: the budget ended within its channel's name, or where a message of
    reasoning could still get a recipient. ASIDE is also a tool's call on a channel
    of reasoning: a message with a recipient.
    """

    UNKNOWN = 0
    UNREAD = 1
    REASONING = 2
    ANSWER = 3
    ASIDE = 4


@dataclass(frozen=True, slots=True)
class Signs:
    """One entry a sign, sorted by place.

    `at`, `behind`: its first id's place, and the place behind its last. `before`,
    `after`: its neighbours' signs in the same row. `kind`: what the message that it
    opens or stands in is for; UNKNOWN before the row's first header.
    """

    sign: Codes
    at: Places
    behind: Places
    row: Places
    before: Codes
    after: Codes
    kind: Codes
    num_rows: int

    def are(self, sign: Sign, *kinds: Kind) -> Flags:
        """Which entries are that sign, and of those kinds when some are named."""
        same = self.sign == sign
        return np.asarray(same & np.isin(self.kind, kinds) if kinds else same)

    def first(self, which: Flags) -> Numbers:
        """Each row's first such entry, NOWHERE for none: [B]."""
        return self._one(np.flatnonzero(which)[::-1])

    def last(self, which: Flags) -> Numbers:
        """Each row's last such entry, NOWHERE for none: [B]."""
        return self._one(np.flatnonzero(which))

    def _one(self, entries: Numbers) -> Numbers:
        entry_B = np.full(self.num_rows, NOWHERE, np.int64)
        entry_B[self.row[entries]] = entries  # the last one written stays
        return entry_B

    def of(self, values: Numbers | Codes, entry_B: Numbers) -> Numbers:
        """`values` (one an entry) at those entries, NOWHERE where there is none: [B]."""
        value_B = np.full(self.num_rows, NOWHERE, np.int64)
        has_B = entry_B != NOWHERE
        value_B[has_B] = values[entry_B[has_B]]
        return value_B


def read_signs(answers: Answers, channels: Channels, markers: Markers) -> Signs:
    """All signs of all outputs."""
    kinds = {
        Sign.CHANNEL: markers.channel_ids,
        Sign.MESSAGE: markers.message_ids,
        Sign.CLOSE: markers.closes,
        Sign.NEXT: markers.nexts,
        Sign.END: markers.ends,
    }
    sign = np.concatenate([np.full(len(hits.at), sign, np.int8) for sign, hits in kinds.items()])
    at, behind, row = (
        np.concatenate([getattr(hits, name) for hits in kinds.values()]) for name in ("at", "behind", "row")
    )
    order = np.argsort(at, kind="stable")
    sign, at, behind, row = sign[order], at[order], behind[order], row[order]
    signs = Signs(
        sign=sign,
        at=at,
        behind=behind,
        row=row,
        before=_shifted(sign, row, 1),
        after=_shifted(sign, row, -1),
        kind=np.zeros(len(at), np.int8),
        num_rows=len(answers),
    )
    kind = _kinds(answers, channels, markers, signs)
    return replace(signs, kind=_carried(kind, sign == Sign.CHANNEL, row))


def _shifted(sign: Codes, row: Places, by: int) -> Codes:
    """Each entry's neighbour's sign, NOTHING across a row's border."""
    neighbour = np.roll(sign, by)
    same = np.roll(row, by) == row
    if len(same):
        same[0 if by > 0 else -1] = False
    return np.where(same, neighbour, np.int8(Sign.NOTHING))


def _kinds(answers: Answers, channels: Channels, markers: Markers, signs: Signs) -> Codes:
    """What each header is for: by its channel's name, and of a message of reasoning also by its recipient."""
    kind = np.zeros(len(signs.at), np.int8)
    entry = np.flatnonzero(signs.sign == Sign.CHANNEL)
    place, of_row = signs.at[entry] + 1, signs.row[entry]
    cut = answers.finish_type_B[of_row] == LENGTH
    answer, *asides = channels.content
    names = [(name, Kind.REASONING) for name in channels.reasoning] + [(answer, Kind.ANSWER)]
    names += [(name, Kind.ASIDE) for name in asides]
    kind[entry[cut & (place == answers.ends_B[of_row])]] = Kind.UNREAD
    for name, _ in names:
        kind[entry[cut & cut_off_at(answers, name, place, of_row)]] = Kind.UNREAD
    behind_name = place.copy()
    # Where one name begins with another, the longer counts.
    for name, is_for in sorted(names, key=lambda named: len(named[0])):
        named = stands_at(answers, name, place, of_row)
        kind[entry[named]] = is_for
        behind_name[named] = place[named] + len(name)
    reasoning = kind[entry] == Kind.REASONING
    kind[entry[reasoning & cut & (signs.after[entry] == Sign.NOTHING)]] = Kind.UNREAD
    kind[entry[reasoning & _have_recipient(channels, markers, signs, entry, behind_name)]] = Kind.ASIDE
    return kind


def _have_recipient(channels: Channels, markers: Markers, signs: Signs, entry: Places, behind_name: Places) -> Flags:
    """Whole headers with more than white space between the name and the body, or before the header and behind `next`.

    A format (gpt-oss: `json`, after `<|constrain|>`) only follows a recipient: what stands there is not read.
    """
    body = np.append(signs.at[1:], NOWHERE)[entry]
    extra = first_not_blank(markers.blanks, behind_name) < body
    behind_next = np.roll(signs.at, 1)[entry] + len(channels.next_ids)
    before = (signs.before[entry] == Sign.NEXT) & (first_not_blank(markers.blanks, behind_next) < signs.at[entry])
    return np.asarray((signs.after[entry] == Sign.MESSAGE) & (extra | before))


def _carried(kind: Codes, headers: Flags, row: Places) -> Codes:
    """Each header's kind for all signs up to the row's next header."""
    header = np.maximum.accumulate(np.where(headers, np.arange(len(kind)), NOWHERE))
    # NOWHERE is an index too, of the last entry: it may be of the same row only where it is masked.
    inside = (header != NOWHERE) & (row[header] == row)
    return np.where(inside, kind[header], np.int8(Kind.UNKNOWN))
