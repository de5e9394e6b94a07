"""`token_freq.pt` without torch: what torch.load takes with weights_only=True. With torch: tests/trainers."""

from __future__ import annotations

import io
import pickle
import pickletools
import zipfile

import numpy as np

from draftmill.arrays import MAX_ID
from draftmill.exporters.speculators import write_token_freq
from draftmill.exporting.counts import IdCounts


def archive(counts: IdCounts) -> zipfile.ZipFile:
    file = io.BytesIO()
    write_token_freq(file, counts)
    return zipfile.ZipFile(file)


def counted(*ids: int) -> IdCounts:
    counts = IdCounts()
    counts.add(np.array(ids, np.int32))
    return counts


def test_a_dict_of_ids_and_how_often_each_occurs() -> None:
    with archive(counted(5, MAX_ID, 5, 0)) as file:
        assert pickle.loads(file.read("token_freq/data.pkl")) == {5: 2, 0: 1, MAX_ID: 1}


def test_nothing_that_the_careful_reader_refuses() -> None:
    """No import, no object: dict and ints alone; and what PyTorch's reader of archives asks for."""
    with archive(counted(*range(3000))) as file:
        names = {opcode.name for opcode, _, _ in pickletools.genops(file.read("token_freq/data.pkl"))}
        assert not names & {"GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "INST", "OBJ", "NEWOBJ", "PERSID", "BINPERSID"}
        assert file.read("token_freq/byteorder") == b"little"
        assert int(file.read("token_freq/version")) == 3
        assert {entry.compress_type for entry in file.infolist()} == {zipfile.ZIP_STORED}


def test_no_id_at_all() -> None:
    with archive(IdCounts()) as file:
        assert pickle.loads(file.read("token_freq/data.pkl")) == {}
