"""What is read from a CSV file, where reading goes on, and what is refused in which words."""

import csv
import io
import time
import tracemalloc

import pytest
from django.core.files.base import ContentFile
from hypothesis import given
from hypothesis import strategies as st

from project.csv_source import BadInput, Position, Row, open_source, write_output

LIMIT = 1_000_000


def rows_of(data: bytes, column: str = "country") -> list[Row]:
    return list(open_source(io.BytesIO(data), column, max_bytes=LIMIT).rows())


def refusal_of(data: bytes, column: str = "country") -> str:
    with pytest.raises(BadInput) as refusal:
        rows_of(data, column)
    message = str(refusal.value)
    assert "\n" not in message
    return message


def test_rows_carry_their_number_their_line_and_their_end() -> None:
    data = b"name,country\nAnn,Korea\nBob,Peru\n"
    assert rows_of(data) == [
        Row(1, 2, ["Ann", "Korea"], end_offset=23, end_line=3),
        Row(2, 3, ["Bob", "Peru"], end_offset=len(data), end_line=4),
    ]


def test_a_quoted_newline_is_part_of_one_row() -> None:
    rows = rows_of(b'address,country\r\n"1 Road\r\nTown",Peru\r\n2 Road,Chile\r\n')
    assert [(row.row_number, row.line_number, row.fields[0]) for row in rows] == [
        (1, 2, "1 Road\r\nTown"),
        (2, 4, "2 Road"),
    ]


def test_reading_goes_on_after_any_row_in_a_fresh_process() -> None:
    data = '\ufeffaddress,country\r\n"Rué 1\r\n""Ville""",Peru\r\n\r\n"x,y",Chile\nlast,"K\no\nrea"'.encode()
    rows = rows_of(data)
    assert len(rows) == 3
    for number, row in enumerate(rows, start=1):
        stored = list(Position.after(row))
        again = open_source(io.BytesIO(data), "country", max_bytes=LIMIT).rows(Position(*stored))
        assert list(again) == rows[number:]


@given(
    st.lists(
        st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0")), min_size=2, max_size=2), max_size=8
    ),
    st.sampled_from(["\n", "\r\n"]),
)
def test_what_the_csv_module_writes_is_read_back_and_resumed_at_each_row(table: list[list[str]], newline: str) -> None:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator=newline, quoting=csv.QUOTE_ALL).writerows([["a", "country"], *table])
    data = text.getvalue().encode()
    rows = rows_of(data)
    assert [row.fields for row in rows] == table
    source = open_source(io.BytesIO(data), "country", max_bytes=LIMIT)
    for number, row in enumerate(rows, start=1):
        assert list(source.rows(Position.after(row))) == rows[number:]


def test_a_byte_order_mark_is_skipped() -> None:
    assert open_source(io.BytesIO(b"\xef\xbb\xbfcountry\nPeru\n"), "country", max_bytes=LIMIT).columns == ["country"]


def test_lines_without_text_are_no_rows_but_count_as_lines() -> None:
    rows = rows_of(b"\nname,country\n\nAnn,Peru\n\n")
    assert [(row.row_number, row.line_number) for row in rows] == [(1, 4)]


def test_the_last_line_needs_no_ending() -> None:
    assert [row.fields for row in rows_of(b"country\nPeru")] == [["Peru"]]


def test_a_file_with_a_header_only_has_no_rows() -> None:
    assert rows_of(b"name,country\n") == []


def test_the_column_is_found_without_case_and_spaces_but_exactly_first() -> None:
    assert open_source(io.BytesIO(b"a, Country \n"), "COUNTRY", max_bytes=LIMIT).column_index == 1
    assert open_source(io.BytesIO(b"Country,country\n"), "country", max_bytes=LIMIT).column_index == 1


def test_names_come_without_the_spaces_around_them() -> None:
    source = open_source(io.BytesIO(b"name,country\nAnn, Peru \n"), "country", max_bytes=LIMIT)
    assert [source.name(row) for row in source.rows()] == ["Peru"]


def test_django_files_are_read_too() -> None:
    file = ContentFile(b"country\nPeru\n")
    assert [row.fields for row in open_source(file, "country", max_bytes=LIMIT).rows()] == [["Peru"]]


@pytest.mark.parametrize("data", [b"", b"\n\r\n\n", b"\xef\xbb\xbf"])
def test_an_empty_file_is_refused(data: bytes) -> None:
    assert "empty" in refusal_of(data)


def test_a_missing_column_is_refused_with_the_columns_that_there_are() -> None:
    assert refusal_of(b"name,land\nAnn,Peru\n") == "There is no column “country”: choose one of “name”, “land”."


def test_a_file_with_semicolons_is_refused_for_that() -> None:
    assert "commas" in refusal_of(b"name;country\nAnn;Peru\n")


@pytest.mark.parametrize("header", [b"country,country", b"Country, COUNTRY"])
def test_a_column_that_is_there_twice_is_refused(header: bytes) -> None:
    assert "2 columns “country”" in refusal_of(header + b"\n")


def test_a_file_that_has_the_output_column_already_is_refused() -> None:
    assert "already has a column “country_code”" in refusal_of(b"country,Country_Code\n")


def test_a_file_that_is_not_utf8_is_refused_with_byte_and_line() -> None:
    message = refusal_of("name,country\nAnn,Peru\nBjörn,Chile\n".encode("latin-1"))
    assert "byte 25, on line 3" in message


def test_utf16_is_refused() -> None:
    assert "not UTF-8" in refusal_of("country\nPeru\n".encode("utf-16"))
    assert "NUL" in refusal_of("country\nPeru\n".encode("utf-16-le"))


def test_too_few_fields_are_refused_with_their_line() -> None:
    assert refusal_of(b'name,country\n"A\nn",Peru\nBob\n').startswith("Line 4 has too few fields, 1 instead of 2")


def test_too_many_fields_are_refused_with_their_line() -> None:
    assert refusal_of(b"name,country\nAnn,Korea, South\n").startswith("Line 2 has too many fields, 3 instead of 2")


def test_a_quote_that_is_never_closed_is_refused_where_it_opens() -> None:
    assert "line 3 is never closed" in refusal_of(b'name,country\nAnn,Peru\n"Bob,Chile\nCid,Peru\n')


def test_text_after_a_closing_quote_is_refused() -> None:
    assert "line 2 is not valid CSV" in refusal_of(b'name,country\n"Ann"x,Peru\n')


def test_a_field_that_is_too_long_is_refused() -> None:
    data = b'name,country\n"' + b"line\n" * 50_000 + b'",Peru\n'
    assert "line 2 is longer than 131,072 characters" in refusal_of(data)


def test_a_line_without_end_is_refused_before_it_fills_the_memory() -> None:
    data = b"country\n" + "é".encode() * 1_000_000
    with pytest.raises(BadInput, match=r"Line 2 is longer than 1,048,576 bytes"):
        list(open_source(io.BytesIO(data), "country", max_bytes=10 * LIMIT).rows())


def test_lone_carriage_returns_are_refused() -> None:
    assert "carriage return" in refusal_of(b"name,country\rAnn,Peru\r")


def test_a_file_over_the_limit_is_refused_with_both_sizes() -> None:
    with pytest.raises(BadInput, match=r"has 5,008 bytes, more than the limit of 5,007"):
        open_source(io.BytesIO(b"country\n" + b"Peru\n" * 1000), "country", max_bytes=5007)
    open_source(io.BytesIO(b"country\n" + b"Peru\n" * 1000), "country", max_bytes=5008)


@pytest.mark.parametrize("changed", [b"country\nPe\n", b"country\nMadagascar\nPeru\n"])
def test_a_file_that_was_replaced_is_not_read_on(changed: bytes) -> None:
    first = rows_of(b"country\nPeru\nChile\n")[0]
    with pytest.raises(BadInput, match="has changed since row 1"):
        list(open_source(io.BytesIO(changed), "country", max_bytes=LIMIT).rows(Position.after(first)))


def test_the_output_has_the_columns_of_the_input_and_the_code() -> None:
    destination = io.BytesIO()
    source = io.BytesIO('name,country\n"Ann, née B", Korea \n"C\nD","Côte ""d\'Ivoire"""\n'.encode())
    count = write_output(source, destination, "country", {"Korea": "KR", 'Côte "d\'Ivoire"': "CI"})
    assert count == 2
    assert destination.getvalue().decode() == (
        'name,country,country_code\n"Ann, née B", Korea ,KR\n"C\nD","Côte ""d\'Ivoire""",CI\n'
    )


def test_the_output_keeps_line_ending_and_byte_order_mark() -> None:
    destination = io.BytesIO()
    write_output(io.BytesIO(b"\xef\xbb\xbfcountry\r\nPeru\r\n"), destination, "country", {"Peru": "PE"})
    assert destination.getvalue() == b"\xef\xbb\xbfcountry,country_code\r\nPeru,PE\r\n"


def test_the_files_are_left_open() -> None:
    source, destination = io.BytesIO(b"country\nPeru\n"), io.BytesIO()
    write_output(source, destination, "country", {"Peru": "PE"})
    assert not source.closed
    assert not destination.closed


def test_a_name_without_a_code_is_an_error_of_the_caller() -> None:
    with pytest.raises(KeyError, match="Peru"):
        write_output(io.BytesIO(b"country\nPeru\n"), io.BytesIO(), "country", {})


def test_a_hundred_thousand_rows_are_read_and_written_in_two_seconds_each() -> None:
    data = b"name,city,country\n" + b"Ann,Lima,Peru\n" * 100_000
    started = time.perf_counter()
    assert sum(1 for _ in open_source(io.BytesIO(data), "country", max_bytes=10 * LIMIT).rows()) == 100_000
    read = time.perf_counter()
    assert write_output(io.BytesIO(data), io.BytesIO(), "country", {"Peru": "PE"}) == 100_000
    assert read - started < 2
    assert time.perf_counter() - read < 2


def test_memory_does_not_grow_with_the_number_of_rows() -> None:
    def peak(count: int) -> int:
        source = open_source(io.BytesIO(b"name,country\n" + b"Ann,Peru\n" * count), "country", max_bytes=10 * LIMIT)
        tracemalloc.start()
        for _ in source.rows():
            pass
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(10)  # imports and caches
    assert peak(50_000) < peak(500) + 50_000
