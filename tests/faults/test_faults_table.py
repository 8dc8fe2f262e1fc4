"""The table of known faults is complete and true."""

from __future__ import annotations

import faults


def test_every_case_has_tests():
    assert not faults.without(), "write a test with the number in its name"


def test_no_test_names_a_case_that_there_is_not():
    known = [number for number, *_ in faults.CASES]
    assert known == [f"H{k:02}" for k in range(1, 83)]
    assert set(faults.tested()) <= set(known)


def test_numbers_are_found_in_names_and_in_the_names_of_parameters():
    assert faults._NAME.findall("test_H53_H13_where_both") == ["53", "13"] and faults._NAME.findall(
        "test_h78_lower_case"
    ) == ["78"]
    assert (
        faults._NAME.findall("test_sha256_and_H1_and_H100_x") == []
        and faults._ID.match("H25 sign")
        and not faults._ID.match("H256")
    )
    assert {"H52", "H53", "H54", "H55", "H56", "H57"} <= {
        case for case, files in faults.tested().items() if "test_onnx.py" in files
    }
