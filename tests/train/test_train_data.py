"""Texts, tables, vocabularies, batches, and what is said about bad data."""

from __future__ import annotations

import re

import numpy as np
import pytest
from train_parts import task_config

from rnnspec.train import (
    Shuffled,
    TrainError,
    Vocabulary,
    load_task,
    make_corpus,
    make_streams,
    padded,
    read_text,
    unigram_entropy,
    vocabulary,
)
from rnnspec.train.batches import split

DIGEST = "f94edcad23b9530f33721f4f392e054c8fdb6534582be5f5646776917e032e87"  # of the default text, SHA-256


def test_vocabulary_is_made_from_the_training_part_and_has_an_unknown_symbol():
    corpus = make_corpus("abc" * 30 + "abz~abz~ab", "test")
    assert corpus.vocabulary.characters == "\N{REPLACEMENT CHARACTER}abc"
    assert (
        corpus.vocabulary.decode(corpus.held_out) == "ab\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}" * 2 + "ab"
    )
    assert corpus.unknown == 4 and len(corpus.held_out) == 10


def test_encoding_there_and_back():
    text = "Ünïcode \U0001f600 \N{REPLACEMENT CHARACTER} and\ttabs\n"
    vocabulary = Vocabulary.of(text)
    assert vocabulary.decode(vocabulary.encode(text)) == text
    assert vocabulary.encode("").shape == (0,)
    assert Vocabulary.of("").encode("ab").tolist() == [0, 0]


def test_streams_go_on_where_the_chunk_before_ended():
    streams = make_streams(np.arange(27), 4)
    assert streams.inputs.shape == (6, 4)
    assert streams.inputs[:, 1].tolist() == [6, 7, 8, 9, 10, 11] and streams.labels[:, 1].tolist() == [
        7,
        8,
        9,
        10,
        11,
        12,
    ]
    (a, _), (b, _) = streams.chunk(0, 3), streams.chunk(3, 3)
    assert (b[0] == a[-1] + 1).all()
    with pytest.raises(TrainError, match="too few"):
        make_streams(np.arange(4), 4)


def test_unigram_entropy():
    assert unigram_entropy(np.array([0, 1, 2, 3] * 5)) == 2.0
    assert unigram_entropy(np.array([7, 7])) == 0.0 == unigram_entropy(np.array([], int))


def test_read_text_says_what_is_wrong(tmp_path):
    for name, content, message in (
        ("empty", b"", "is empty"),
        ("latin", b"one\ncaf\xe9", "row 2: not UTF-8: byte 0xe9 at position 7"),
        (".", None, "is a folder"),
    ):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(TrainError, match=message):
            read_text(tmp_path / name)
    with pytest.raises(TrainError, match="no file"):
        read_text(tmp_path / "absent")
    (tmp_path / "bom").write_bytes(b"\xef\xbb\xbfa\r\nb")
    assert read_text(tmp_path / "bom") == "a\nb"


def test_the_default_text_is_the_same_everywhere():
    """Letter by letter, with every Python: figures in the README are of this text. A change of the
    rules changes it, and then they are to be measured anew."""
    from rnnspec.train import default_text
    from rnnspec.train.tales import mixed

    text, corpus = default_text(), make_corpus(default_text(), "default")
    assert corpus.digest == DIGEST
    assert len(corpus.train) > 400_000 and corpus.unknown == 0 and 4.2 < corpus.unigram_bits < 4.4
    bits = mixed(len(text))[1] / len(text)
    assert round(bits, 2) == 0.36  # what who knows the rules needs at most


def test_tales_keep_to_what_they_said():
    """Who a tale is about, and so he or she, holds to its end; a number that is left is never more
    than there were."""
    from rnnspec.train.tales import KINDS, MEN, NUMBERS, WOMEN, tales

    for kind in KINDS:
        found = tales(kind, 50_000)[0].strip().split("\n\n")
        assert len(found) > 40 and len(set(found)) == len(found)
        for tale in found:
            words = tale.replace(",", " ").replace(".", " ").split()
            name = next(w for w in words if w in WOMEN or w in MEN)
            assert not {"he", "He", "his", "him"} & set(words) if name in WOMEN else not {"she", "She"} & set(words)
            assert {w for w in words if w in WOMEN or w in MEN} == {name}
            told = [NUMBERS.index(w) for w in words if w in NUMBERS[3:]]
            assert not told or max(told) <= 12
            assert not re.search(r"\b[Aa] [aeiou]", tale), tale


# --- batches ---


def test_padding():
    whole, lengths = padded([np.array([1, 2, 3]), np.array([4])], -1)
    assert whole.tolist() == [[1, 4], [2, -1], [3, -1]] and lengths.tolist() == [3, 1]
    assert padded([np.ones((2, 5)), np.zeros((2, 5))])[1] is None  # all of one length: none is needed


def test_rows_that_differ_in_kind_are_not_padded():
    for rows, message in (
        ([], "got none"),
        ([np.array([1, 2]), np.array([1.5])], r"int64 \[T\] and float64 \[T\]"),
        (
            [np.ones((2, 3)), np.ones((2, 1))],
            r"float64 \[T, 3\] and float64 \[T, 1\]",
        ),  # NumPy would spread the second over the first's width
    ):
        with pytest.raises(TrainError, match=message):
            padded(rows)


def test_batches_of_nothing_are_refused():
    for count, size, message in ((5, 0, "at least one row"), (5, -2, "at least one row"), (0, 2, "one row or more")):
        with pytest.raises(TrainError, match=message):
            Shuffled(np.ones(count, int), size, 0)
    for part in (0.0, 1.0, -0.5, float("nan"), float("inf")):
        with pytest.raises(TrainError, match="must be between 0 and 1"):
            split(10, part, 0)


def test_an_epoch_has_every_row_once_and_rows_of_one_length_together():
    lengths = np.random.default_rng(0).integers(1, 50, 1003)
    order = Shuffled(lengths, 10, seed=3)
    batches = order.epoch(0)
    assert len(batches) == len(order) == 101 and sorted(np.concatenate(batches)) == list(range(1003))
    spread = np.mean([np.ptp(lengths[b]) for b in batches])
    assert spread < 5 < np.mean([np.ptp(lengths[i : i + 10]) for i in range(0, 1000, 10)])
    ordered = [lengths[b].mean() for b in batches]
    assert ordered != sorted(ordered)  # not the short ones first


def test_the_order_follows_from_seed_and_cursor():
    lengths = np.ones(7, int)
    cursor, seen = {}, []
    first = Shuffled(lengths, 3, seed=1)
    for _ in range(7):
        rows, cursor = first.next(cursor)
        seen.append((rows.tolist(), dict(cursor)))
    assert seen[3][1] == {"epoch": 1, "index": 1} and seen[0][0] != seen[3][0]
    later, _ = Shuffled(lengths, 3, seed=1).next(seen[4][1])  # another process, from a checkpoint
    assert later.tolist() == seen[5][0]
    assert Shuffled(lengths, 3, seed=2).next({})[0].tolist() != seen[0][0]


# --- bad data: what is said has the file and the row ---


def npy_header(shape):
    """The beginning of a .npy file whose header has this text for a shape."""
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header


GOOD = "".join(f'{1 + i % 4},"title {i}","some words {i}"\n' for i in range(40)).encode()


@pytest.mark.parametrize(
    "task, name, content, message",
    [
        ("classify", "d.csv", b"", "d.csv is empty"),
        ("classify", "d.csv", b"  \n \n", "d.csv is empty"),
        (
            "classify",
            "d.csv",
            GOOD.replace(b"2,", b"1,").replace(b"3,", b"1,").replace(b"4,", b"1,"),
            "row 1 and all others: only class 1",
        ),
        ("classify", "d.csv", GOOD + b"0,a,b\n", "d.csv, row 41: class 0 is out of range"),
        ("classify", "d.csv", GOOD + b"-1,a,b\n", "d.csv, row 41: class -1 is out of range"),
        ("classify", "d.csv", GOOD + b"4000,a,b\n", "d.csv, row 41: class 4000"),
        (
            "classify",
            "d.csv",
            GOOD + b"two,a,b\n",
            "d.csv, row 41: the class, in column 1, must be a whole number, not 'two'",
        ),
        ("classify", "d.csv", GOOD + b"1,only two\n", "d.csv, row 41: 2 columns, expected 3: 1 | only two"),
        ("classify", "d.csv", GOOD + b'1,a,"b', "d.csv, row 41: unexpected end of data"),
        ("classify", "d.csv", GOOD + b"1,...,\n1,,\n", "d.csv, row 42: a text without a word"),
        ("classify", "d.csv", GOOD + b"1,caf\xe9,b\n", "d.csv, row 41: not UTF-8: byte 0xe9"),
        (
            "classify",
            "d.csv",
            GOOD + b'1,a,"' + b"x" * 10_000_000 + b'"\n',
            "d.csv, row 41: a field of more than 1,000,000 characters",
        ),
        (
            "reber",
            "d.txt",
            b"BTBTXSETE\nBPBTXSETE\n",
            "d.txt, row 2: 'BPBTXSETE' is not of the embedded Reber grammar: symbol 8 is 'T'",
        ),
        ("reber", "d.txt", b"B\n", "d.txt, row 1: 'B' is not of the embedded Reber grammar"),
        ("reber", "d.txt", b"x" * 10_000_000, "d.txt, row 1: a line of 10,000,000 characters"),
        ("copy", "d.txt", b"abcdef\nabc\n", "d.txt, row 2: 3 characters; items=5"),
        ("copy", "d.txt", b"aaaaaaa\n", "d.txt has only one symbol"),
        ("translate", "d.tsv", b"one\t1\ntwo\n", "d.tsv, row 2: 1 column, expected 2: two"),
        ("translate", "d.tsv", b"one\t1\n\t2\n", "d.tsv, row 2: one side of the pair is empty"),
        ("translate", "d.tsv", b"one\t1\n", "d.tsv: 1 rows can't be split"),
        ("forecast", "d.csv", b"a,b\n1,2\n3,x\n", "d.csv, row 3, column 2: 'x' is not a finite number"),
        ("forecast", "d.csv", b"1\nnan\n", "d.csv, row 2, column 1: 'nan' is not a finite number"),
        ("forecast", "d.csv", b"a,b\n", "d.csv has a row of names and no numbers"),
        ("forecast", "d.csv", b"1\n2\n", "d.csv has 2 rows; windows of 64 and a horizon of 6 need 351"),
        ("forecast", "d.csv", b"1\n" * 1000, "column 0 doesn't change"),
        ("adding", "d.npy", b"no array", "d.npy is not a .npy file"),
        (
            "adding",
            "d.npy",
            npy_header("(1000000000000, 2)"),
            "d.npy is not a .npy file of numbers: an array of the shape (1000000000000, 2) has 16,000,000,000",
        ),
        ("adding", "d.npy", npy_header("(10, ("), "d.npy is not a .npy file"),
        ("translate", "d.tsv", b"one\t1\n;\t2\n", "d.tsv, row 2: one side of the pair is empty, or has no word"),
        ("copy", "d.txt", "abcdef\x0c\u2028\nabc\n".encode(), "d.txt, row 2: 3 characters; items=5"),
        (
            "forecast",
            "d.csv",
            b"1\n2\n" * 400 + b"3e60\n",
            "d.csv, row 800 of numbers (counted from 0): 3e+60 in column 0 is too large",
        ),
    ],
)
def test_bad_data_is_told_with_file_and_row(task, name, content, message, tmp_path):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(TrainError) as found:
        load_task(task).make(task_config(task, data=str(path)), {})
    assert message in str(found.value) and len(str(found.value)) < 400


def test_bad_arrays(tmp_path):
    for array, message in (
        (np.ones(3), r"\[3\]; \[N, T\]"),
        (np.array([[1.0, np.nan]]), r"row 0 .*\[0, 1\]"),
        (np.array(["a"]), "values of <U1, and numbers are wanted"),
        (np.array([{}], dtype=object), "values of object, and numbers are wanted"),
        (np.array([[1.0, 2.0], [1.0, -2e18]]), r"row 1 .*: -2e\+18 at \[1, 1\]; at most 1e\+18"),
    ):
        np.save(tmp_path / "d.npy", array, allow_pickle=True)
        with pytest.raises(TrainError, match=message):
            load_task("adding").make(task_config("adding", data=str(tmp_path / "d.npy")), {})


def test_classes_given_by_name_and_a_row_of_names(tmp_path):
    path = tmp_path / "d.csv"
    path.write_bytes(b"class,title,description\r\n" + GOOD)
    problem = load_task("classify").make(task_config("classify", data=str(path)), {})
    assert problem.names == ["1", "2", "3", "4"] and len(problem.train) == 36 and len(problem.test) == 4
    with pytest.raises(TrainError, match="row 4: class 3 is out of range: classes are 1 to 2"):
        load_task("classify").make(task_config("classify", data=str(path), options={"classes": 2}), {})


def test_the_vocabulary_is_of_the_training_part_and_of_the_words_that_are_read(tmp_path):
    path = tmp_path / "d.csv"
    path.write_text("".join(f"{1 + i % 2},w{i},b c d{i}\n" for i in range(20)))
    problem = load_task("classify").make(
        task_config("classify", data=str(path), length=2, options={"held_out": 0.5}), {}
    )
    assert set(problem.words.names) == {"<unknown>", "b", *(f"w{i}" for i in problem.train)}
    assert all(problem.ids[i][0] == 0 for i in problem.test)
    again = load_task("classify").make(task_config("classify", data=str(path), length=2), problem.memory)
    assert again.words == problem.words


def test_words():
    assert vocabulary.words('It\'s "here": (well, U.S.-led #36;)!') == [
        "it", "'", "s", "here", "(", "well", ",", "u", ".", "s", ".", "-led", "#36", ")", "!"]  # fmt: skip
    assert vocabulary.words(" ;: ") == []
    made = vocabulary.of_words([["b", "a", "b"], ["c", "a"]], 3)
    assert (
        made.names == ("<unknown>", "a", "b")
        and made.encode(["c", "b"]).tolist() == [0, 2]
        and made.decode([2, 0]) == ["b", "<unknown>"]
    )


def test_series_from_a_file(tmp_path):
    t = np.arange(600)
    table = np.stack([np.sin(t / 9), 5 + 3 * np.cos(t / 7)], axis=1)
    np.save(tmp_path / "s.npy", table)
    np.savetxt(tmp_path / "s.csv", table, delimiter=",", header="sine,cosine", comments="")
    problems = [
        load_task("forecast").make(task_config("forecast", data=str(tmp_path / f"s.{kind}"), length=20), {})
        for kind in ("npy", "csv")
    ]
    for problem in problems:
        batch, _ = problem.next({})
        np.testing.assert_allclose(batch.x[problem.horizon :], batch.target[: -problem.horizon])
        assert abs(problem.values[: problem.cut].mean()) < 1e-6 and problem.values[
            : problem.cut
        ].std() == pytest.approx(1, abs=1e-5)
    assert problems[1].names == ["sine", "cosine"] and np.allclose(problems[0].values, problems[1].values, atol=1e-6)
