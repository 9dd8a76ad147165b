"""Each format with its difficulties, and each kind of invalid row."""

import importlib

import pytest

from official_bert.data import table_writers, tables
from official_bert.data.text_inputs import TextSource
from official_bert.support.errors import UserError
from official_bert.tasks.classification.datasets import named_dataset
from official_bert.tasks.classification.records import custom_dataset
from official_bert.tasks.multiple_choice import data as choices
from official_bert.tasks.sentence_encoder import data as sentences


def rows_of(read, path, content, **arguments):
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return list(read(str(path), **arguments))


def cells_of(*arguments, **keywords):
    return [row.cells for row in rows_of(*arguments, **keywords)]


def test_tsv_splits_at_tabs_and_newlines_alone(tmp_path):
    content = '\ufeffa "b\t"c\r\n\ufeffd\u2028e\x0b\t\x85,\x0cf\t\n\n"g\n'
    rows = rows_of(tables.read_tsv, tmp_path / "t.tsv", content)
    assert [row.cells for row in rows] == [['a "b', '"c'], ["\ufeffd\u2028e\x0b", "\x85,\x0cf", ""], [], ['"g']]
    assert [row.number for row in rows] == [0, 1, 2, 3]
    assert rows[3].where == f"{tmp_path}/t.tsv, line 4"


def test_csv_honours_quotes_and_counts_lines(tmp_path):
    content = '\ufeff"x","a ""b"", c"\r\ny,"two\r\nlines"\n\nz,\u2028 "d\n'
    rows = rows_of(tables.read_csv, tmp_path / "t.csv", content)
    assert [row.cells for row in rows] == [["x", 'a "b", c'], ["y", "two\nlines"], [], ["z", '\u2028 "d']]
    assert [row.number for row in rows] == [0, 1, 2, 3]
    assert [row.where.rpartition(" ")[2] for row in rows] == ["1", "2", "4", "5"]
    assert cells_of(tables.read_csv, tmp_path / "t.csv", f'"{"a" * 200_000}",b\n') == [["a" * 200_000, "b"]]
    for bad in ('"open,b\nc,d\n', '"a"b,c\n'):  # a misplaced quote is refused where its row begins
        with pytest.raises(UserError, match=r"t\.csv, line 3: not CSV \("):
            rows_of(tables.read_csv, tmp_path / "t.csv", '"two\nlines",x\n' + bad)
    for read in (tables.read_tsv, tables.read_csv):
        with pytest.raises(UserError, match=r"t, line 2: byte 0xe9 .* not UTF-8"):
            rows_of(read, tmp_path / "t", b"good\ncaf\xe9\n")


@pytest.mark.parametrize(
    ("line", "mistake"),
    [
        ('{"a": "A", "b" "B"}', "not JSON: Expecting ':' delimiter at character 16"),
        (' [{"a": "A", "b": "B", "l": "x"},', "a JSON array begins here; write one object per line, without brack"),
        ('"A"', "a JSON str; write an object with keys on each line"),
        ('{"a": "A", "l": "x"}', "no key 'b'; the keys are 'a', 'l'"),
        ('{"a": "A", "b": "B"}', "no key 'l'; the keys are 'a', 'b'"),
        ('{"a": "A", "b": 5, "l": "x"}', "'b' is 5; a text must be a string"),
        ('{"a": null, "b": "B", "l": "x"}', "'a' is None; a text must be a string"),
    ],
)
def test_jsonl_says_what_is_wrong_with_a_row_and_reads_on(tmp_path, line, mistake):
    good = '{"a": "A", "b": "B", "l": "x"}'
    columns = tables.Columns(["a", "b"], "l")
    bad, after = rows_of(tables.read_jsonl, tmp_path / "t.jsonl", f"{line}\n{good}\n", columns=columns)
    assert mistake in bad.mistake
    assert (bad.cells, after.cells, after.mistake) == ({}, {"a": "A", "b": "B", "l": "x"}, None)
    assert after.where == f"{tmp_path}/t.jsonl, line 2"


def test_nsmc_takes_off_both_layers_of_quotes(tmp_path):
    texts = {
        "plain": "plain",
        '"""a """"b"""""""': 'a "b"',  # quoted to "a ""b""", quoted again
        '"""""""a"""" b"""': '"a" b',
        '"""""""a"""""""': '"a"',  # quotes around the whole text are kept
        "": "",
    }
    cells = cells_of(tables.read_nsmc, tmp_path / "t.txt", "".join(f"1\t{text}\t0\n" for text in texts))
    assert [text for _, text, _ in cells] == [*texts.values()]


def test_review_folders_are_read_in_a_fixed_order(tmp_path):
    for name in ("pos/0_9.txt", "neg/10_2.txt", "neg/1_1.txt", "neg/urls.html", "unsup/0_0.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(f"\ufeff{name}\r\nend".encode())
    rows = list(tables.read_review_folders(str(tmp_path)))
    expected = [[name, f"{name}.txt\nend", name[:3]] for name in ("neg/10_2", "neg/1_1", "pos/0_9")]
    assert [row.cells for row in rows] == expected
    assert [row.number for row in rows] == [0, 1, 2]
    assert rows[2].where == f"{tmp_path}/pos/0_9.txt"
    with pytest.raises(UserError, match="there is no folder .*/neg; .* must contain the folders neg and pos"):
        list(tables.read_review_folders(str(tmp_path / "pos")))


@pytest.mark.parametrize("ending", ["tsv", "csv", "jsonl", "parquet"])
def test_what_is_written_is_read_back(ending, tmp_path):
    path, columns = str(tmp_path / f"t.{ending}"), ["a;b", "n", "x"]
    text = 'one, "two"; three 🍋' + ("" if ending == "tsv" else "\n\tfour")
    rows = [[None, 1, None], [text, None, 0.5], ["", 3, -1.25]]
    assert table_writers.written_format(path, None) == ending
    with table_writers.table_writer(path, ending, ";" if ending == "csv" else ",") as write:
        for row in rows:
            write(columns, row)
    found = [row.cells for row in tables.read_table(path, ending, delimiter=";" if ending == "csv" else ",")]
    if ending in tables.KEYED_FORMATS:
        assert found == [dict(zip(columns, row, strict=True)) for row in rows]
    else:
        assert found == [columns, *(["" if cell is None else str(cell) for cell in row] for row in rows)]


def test_objects_have_no_blank_rows_and_odd_types_of_parquet_are_named(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,2\n\n3,4\n")
    found = tables.read_objects(str(tmp_path / "t.csv"), "csv", ["a", "b"])
    assert [values for _, values in found] == [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]
    pa = pytest.importorskip("pyarrow")
    parquet = importlib.import_module("pyarrow.parquet")
    for column in (pa.array([1], pa.timestamp("ns")), pa.array([1], pa.time64("ns"))):
        parquet.write_table(pa.table({"a": column}), tmp_path / "t.parquet")
        with pytest.raises(UserError, match=r"t.parquet is not Parquet, or damaged at or after row 0: Nanosecond"):
            list(tables.read_objects(str(tmp_path / "t.parquet"), "parquet", ["a"]))


def test_blank_rows_go_at_the_end_alone_and_those_that_would_fill_the_memory_are_refused(tmp_path, monkeypatch):
    rows = rows_of(tables.read_tsv, tmp_path / "t.tsv", "\na\n\n\nb\n\r\n\n")
    assert [row.cells for row in tables.without_trailing_blank_rows(rows)] == [[], ["a"], [], [], ["b"]]
    rows = rows_of(tables.read_jsonl, tmp_path / "t.jsonl", '\n{"t": 1}\n\n', columns=tables.Columns(["t"]))
    assert [row.number for row in tables.without_trailing_blank_rows(rows)] == [0, 1]
    monkeypatch.setattr(tables, "_MOST_BLANK_ROWS", 3)
    rows = rows_of(tables.read_tsv, tmp_path / "t.tsv", "a\n\n\n\nb\n\n\n\n")
    assert len(list(tables.without_trailing_blank_rows(rows))) == 5
    rows = rows_of(tables.read_tsv, tmp_path / "t.tsv", "a\n\n\n\n\nb\n")
    with pytest.raises(UserError, match=r"t.tsv, line 5: 3 blank rows come before it; remove them"):
        list(tables.without_trailing_blank_rows(rows))


def classified(path, text, label, **table):
    dataset = custom_dataset({"dev": path}, [text], label, labels=["p", "q"], **table)
    return [(example.text_a, example.label) for example in dataset.examples(None, "dev")]


def chosen(path, text, label, **table):
    folder, name = path.rsplit("/", 1)
    layout = choices.Layout(text, (label, text), files={"test": name}, **table)
    return [(example.context, example.choices[0]) for example in choices.read_examples(folder, layout, "test")]


def paired(path, *names, **table):
    return [tuple(row.values()) for _, row in sentences.read_rows(path, sentences.Layout(names, **table))]


HEADER_READERS = {
    "classification": classified,
    "multiple choice": chosen,
    "sentence encoder": paired,
    "texts": lambda path, *names, **table: list(TextSource(path, names, **table)),
}


@pytest.mark.parametrize("reader", HEADER_READERS)
@pytest.mark.parametrize("ending", ["tsv", "csv"])
@pytest.mark.parametrize(
    ("content", "has_header", "mistake"),
    [
        ("t,k\nWarm.,p\nA bright, warm town.,p\n", True, "line 3: 3 columns, but the header has 2; does a text"),
        ("t,k\nWarm.,p,,x\n", True, "line 2: 4 columns, but the header has 2; .* The row begins 'Warm.'"),
        ("Rain, and snow.,p,x\nRain.,p\n", False, "line 2: 2 columns, but the first row has 4; does a text"),
        ("Rain.,p\nRain, and snow.,p\n", False, "line 2: 3 columns, but the first row has 2"),
        # Excel writes blanks in cells and rows that were once used, and may leave out the last delimiters.
        ("t,k,,\nRain.,p,,\nSnow.,q\nA town.,p,,, ,\n,,,\n\n", True, None),
        ("Rain.,p,,\nSnow.,q\nA town.,p,,,,\n , ,,\n", False, None),
        ("t,k,note\nRain.,p\nSnow.,q,cold\nA town.,p,\n", True, None),
    ],
)
def test_rows_of_different_widths_are_mistakes_unless_cells_are_empty(
    reader, ending, content, has_header, mistake, tmp_path
):
    path = tmp_path / f"t.{ending}"
    path.write_text(content if ending == "csv" else content.replace(",", "\t"))
    names = ("t", "k") if has_header else ("0", "1")
    if mistake is None:
        found = HEADER_READERS[reader](str(path), *names, has_header=has_header)
        assert found == [("Rain.", "p"), ("Snow.", "q"), ("A town.", "p")]
        return
    with pytest.raises(UserError, match=f"t.{ending}, {mistake}"):
        HEADER_READERS[reader](str(path), *names, has_header=has_header)


def test_files_with_semicolons_and_a_byte_order_mark_are_read_as_excel_writes_them_in_german(tmp_path):
    (path := tmp_path / "a.csv").write_bytes('Text;b;k\r\n"a; ""b""";3,5;p\r\nd,e;f;q\r\n'.encode("utf-8-sig"))
    for read in HEADER_READERS.values():
        assert read(str(path), "Text", "k", delimiter=";") == [('a; "b"', "p"), ("d,e", "q")]
    with pytest.raises(UserError, match="delimiter=; is for CSV; .*/a.tsv is read as tsv"):
        list(TextSource(str(path.rename(tmp_path / "a.tsv")), ["Text"], delimiter=";"))


@pytest.mark.parametrize("reader", HEADER_READERS)
def test_the_header_is_logged_and_doubted_if_columns_are_numbers(reader, tmp_path, caplog):
    caplog.set_level("INFO", logger="absl")
    path = tmp_path / "t.tsv"
    path.write_text("warm rooms\tp\ncold rooms\tq\n")
    HEADER_READERS[reader](str(path), "warm rooms", "p")
    HEADER_READERS[reader](str(path), "warm rooms", "p")
    HEADER_READERS[reader](str(path), "0", "1")
    header = f"{path}, line 1 is taken as the header: 'warm rooms', 'p'"
    told = [record for record in caplog.records if header in record.message]
    assert [record.levelname for record in told] == ["INFO", "WARNING"]
    assert "if it is an example, give has_header=False" in told[1].message


def test_a_published_file_whose_header_has_a_label_is_doubted(tmp_path, caplog):
    row = "{}\t1\t2\tA.\tB.\n"
    (tmp_path / "train.tsv").write_text("".join(map(row.format, "010")))
    (tmp_path / "dev.tsv").write_text("".join(map(row.format, ["Quality", "1"])))
    for split in ("train", "dev"):
        named_dataset("mrpc").examples(str(tmp_path), split)
    (told,) = (record.message for record in caplog.records if "header" in record.message)
    assert "train.tsv, line 1 is taken as the header: '0', '1'" in told
