"""Reading files of tagged words: valid ones in both layouts, and every kind of invalid one."""

import json
import re

import pytest

from official_bert.support.errors import UserError
from official_bert.tasks.tagging.data import TaggedSentence, read_tagged_file, recognize_layout
from official_bert.tasks.tagging.records import tags_of, warn_of_other_notation

CONLL = """\
-DOCSTART- -X- O O

Anna NNP B-NP B-PER
rows VBZ B-VP O

Ashford NNP B-NP B-LOC
. . O O

-DOCSTART- -X- O O

Ida NNP B-NP B-PER
"""


def tagged(words, tags, document=0, line=1):
    return TaggedSentence(tuple(words.split()), tags and tuple(tags.split()), document, line)


def read(tmp_path, content, **arguments):
    path = tmp_path / "words.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_tagged_file(str(path), **arguments)


def words_and_tags(tagged_file):
    return [(" ".join(sentence.words), " ".join(sentence.tags)) for sentence in tagged_file.sentences]


def refusal(tmp_path, content, **arguments):
    with pytest.raises(UserError) as error:
        read(tmp_path, content, **arguments)
    message = str(error.value)
    assert message.startswith(str(tmp_path / "words.txt"))
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text,
        lambda text: text.replace(" ", "\t"),
        lambda text: text.replace(" ", "   ").replace("O\n", "O  \n"),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "\ufeff" + text,
        lambda text: text.removesuffix("\n"),
        lambda text: text.replace("\n\n", "\n \t\n"),
        lambda text: text.replace("\n\n", "\n\ufeff\n") + "\ufeff\n\n \ufeff\ufeff",  # concatenated files
        lambda text: text.replace("-DOCSTART- -X- O O", "-DOCSTART-"),
        lambda text: text.replace("-DOCSTART- -X- O O", "-DOCSTART- (1 harbour)"),
    ],
)
def test_columns_of_a_conll_file_and_other_ways_to_write_the_same(tmp_path, change):
    tagged_file = read(tmp_path, change(CONLL))
    assert tagged_file.sentences == [
        *(tagged("Anna rows", "B-PER O", 0, 3), tagged("Ashford .", "B-LOC O", 0, 6)),
        tagged("Ida", "B-PER", 1, 11),
    ]
    assert tagged_file.layout == "columns"


def test_odd_characters_stay_in_the_word_of_a_column(tmp_path):
    words = ["a\xa0b", "\xa0", "\u200b", "z\u200dz", "\x07", "\x1c\x1d", "\x0b", "\u2028", "\u3000", "\ufeff", "\x00"]
    for separator in " \t":
        text = "".join(f"{word}{separator}O\n" for word in words)
        (sentence,) = read(tmp_path, "x O\n".replace(" ", separator) + text).sentences
        assert sentence.words == ("x", *words)
    (sentence,) = read(tmp_path, "a\n\u00a0\n\x1f\nb\n", is_tagged=False).sentences
    assert sentence.words == ("a", "\u00a0", "\x1f", "b")
    parts = " ".join(words).split()  # in a sentence, U+00A0 is white space too
    (sentence,) = read(tmp_path, " ".join(words) + "\t" + "O " * len(parts)).sentences
    assert list(sentence.words) == parts and len(parts) < len(words)


def test_only_the_first_byte_order_mark_is_left_out(tmp_path):
    (sentence,) = read(tmp_path, "\ufeff\ufeffa O\n\ufeffb O\n").sentences
    assert sentence.words == ("\ufeffa", "\ufeffb")
    assert read(tmp_path, "\ufeff\n\na O\n").sentences[0].line == 3


COMMENTS = """\
# newdoc id = n1
# sent_id = 1
# text = # 3 rows
#text = # 3 rows
# O
3 O
# O

-DOCSTART-
# newpar
rows O

# id 6a5d-2e domain=en
# O
"""


GERMEVAL = """\
#	http://de.example.org/wiki/Anna	[2009-10-17]
1	Anna	B-PER	O
2	rows	O	O

# http://de.example.org/wiki/Ida [2009-10-17]
1	#	O	O
"""


CONLL_U = """\
# text = Anna'll row
1-2	Anna'll	_	_
1	Anna	PROPN	B-PER
2	'll	AUX	O
2.1	really	ADV	O
3	row	VERB	O
"""
# Documents without sentences are not counted.
DOCUMENTS = "-DOCSTART-\n-DOCSTART-\n\na O\n-DOCSTART-s O\n\n\nb O\n-DOCSTART-\n-DOCSTART-\nc O\nd O\n\n-DOCSTART-\n"
NEWDOC = "# newdoc\na\tO\n\n# Chapter one\nb\tO\n\n# newdoc id = 2\nc\tO\n# d\tO\n"
OF_DOCUMENTS = [tagged("a -DOCSTART-s", "O O", 0, 4), tagged("b", "O", 0, 8), tagged("c d", "O O", 1, 11)]
OF_NEWDOC = [tagged("a", "O", 0, 2), tagged("b", "O", 0, 5), TaggedSentence(("c", "# d"), ("O", "O"), 1, 8)]
OF_COMMENTS = [tagged("# 3 #", "O O O", 0, 5), tagged("rows", "O", 1, 11), tagged("#", "O", 1, 14)]


@pytest.mark.parametrize(
    ("text", "word_column", "tag_column", "comments", "expected"),
    [
        (COMMENTS, 0, -1, {1, 2, 3, 4, 10, 13}, OF_COMMENTS),
        (COMMENTS.replace(" O\n", "\tO\n"), 0, -1, {1, 2, 3, 4, 10, 13}, OF_COMMENTS),
        (GERMEVAL, 1, 2, {1, 5}, [tagged("Anna rows", "B-PER O", 0, 2), tagged("#", "O", 0, 6)]),
        (CONLL_U, 0, -1, {1, 2, 5}, [tagged("Anna 'll row", "B-PER O O", 0, 3)]),
        (CONLL_U, 1, -1, {1, 2, 5}, [tagged("Anna 'll row", "B-PER O O", 0, 3)]),
        (DOCUMENTS, 0, 1, set(), OF_DOCUMENTS),
        (NEWDOC, 0, 1, {1, 4, 7}, OF_NEWDOC),
    ],
)
def test_documents_and_what_is_no_word(tmp_path, text, word_column, tag_column, comments, expected):
    found = read(tmp_path, text, word_column=word_column, tag_column=tag_column)
    assert (found.sentences, found.comments, found.lines) == (expected, comments, text.splitlines())


@pytest.mark.parametrize(
    ("text", "arguments", "expected"),
    [
        *(
            ("1 O Anna B-PER x\n2 O rows O y\n", {"word_column": word, "tag_column": tag}, [("Anna rows", "B-PER O")])
            for word, tag in ((2, 3), (-3, -2), (2, -2))
        ),
        # Numbers that do not count the words are words.
        ("1 O\n2 B-X\n", {}, [("1 2", "O B-X")]),
        ("1 CD O\n", {}, [("1", "O")]),
        ("1 a O\n2 b O\n\nfin c O\n", {}, [("1 2", "O O"), ("fin", "O")]),
        # Hash signs elsewhere do not begin comments.
        ("# O\n1 O\n\n#tag B-X\n#a=b O\n", {}, [("# 1", "O O"), ("#tag #a=b", "B-X O")]),
        ("Anna\tB-PER\nRain\tO\n", {}, [("Anna Rain", "B-PER O")]),
        ("Anna\tB-PER\nRain\tO\n", {"file_layout": "sentences"}, [("Anna", "B-PER"), ("Rain", "O")]),
    ],
)
def test_words_and_tags_are_found_in_their_columns(tmp_path, text, arguments, expected):
    assert words_and_tags(read(tmp_path, text, **arguments)) == expected


NUMBERED = "1 Anna NNP B-PER\n2 rows VBZ O\n\n1 Ashford NNP B-LOC\n"


@pytest.mark.parametrize("separator", [" ", "\t"])
@pytest.mark.parametrize("is_tagged", [True, False])
@pytest.mark.parametrize(
    "change",
    [
        lambda text: text,
        lambda text: text.replace("1 ", "0 ").replace("2 ", "1 "),
        lambda text: text.replace("\n1 ", "\n3 "),  # one count for the whole file
        lambda text: f"-DOCSTART- -X- O O\n\n{text}",
    ],
)
def test_a_column_that_counts_the_words_is_skipped(tmp_path, caplog, change, is_tagged, separator):
    text = change(NUMBERED).replace(" ", separator)
    found = read(tmp_path, text, is_tagged=is_tagged)
    assert words_and_tags(found) == [("Anna rows", "B-PER O"), ("Ashford", "B-LOC")]
    assert "words.txt: column 0 counts the words, so column 1 is read as the words (word_column=1)" in caplog.text
    caplog.clear()
    assert read(tmp_path, text, word_column=1).sentences == found.sentences and not caplog.text
    assert all(map(str.isdecimal, read(tmp_path, text, word_column=-4).sentences[0].words))


def test_numbered_words_without_tags(tmp_path):
    for separator in " \t":
        text = "1 Anna\n2 rows\n\n1 Ida\n".replace(" ", separator)
        found = read(tmp_path, text, is_tagged=False)
        assert [sentence.words for sentence in found.sentences] == [("Anna", "rows"), ("Ida",)]
        assert found.sentences[0].tags is None
        assert "column 1 cannot be both the word and the tag" in refusal(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("B-PER Anna\nO rows\n", {}),
        ("B-PER O\tAnna rows\n", {}),
        ("Anna\tB-PER\nrows\tO\n", {"word_column": 1, "tag_column": 0}),
        ("1 PER_B Anna\n2 - rows\n", {}),
        ("1 Anna O\n3 rows O\n", {}),
        ("1 Anna O\n\n1 rows O\n", {}),
        ("Anna NNP (PER*)\nrows VBZ *\n", {"word_column": 2, "tag_column": 1}),
    ],
)
@pytest.mark.parametrize("is_tagged", [True, False])
def test_swapped_columns_are_refused(tmp_path, text, arguments, is_tagged):
    if not is_tagged and "\t" not in text:
        arguments = {**arguments, "file_layout": "columns"}
    assert "or words and tags are swapped" in refusal(tmp_path, text, is_tagged=is_tagged, **arguments)


def test_more_tags_than_words_are_warned_of(tmp_path, caplog):
    assert read(tmp_path, "VBZ rows\nVBZ waits\nNNP Ida\n") and "more different tags than words" in caplog.text
    caplog.clear()
    assert read(tmp_path, "rows VBZ\nwaits VBZ\nIda NNP\n") and not caplog.text


def test_a_column_with_the_same_word_in_each_line_is_refused(tmp_path):
    file = read(tmp_path, "bc/x Anna B-PER\nbc/x rows O\n\nnw/y Ida B-PER\nnw/y waits O\n")
    with pytest.raises(UserError, match="words.txt: all words of a sentence are the same, as in the first 'bc/x'"):
        tags_of(file)


@pytest.mark.parametrize("name", ["words.csv", "words.parquet"])
def test_tables_are_refused(tmp_path, name):
    (tmp_path / name).write_text("Sentence #,Word,POS,Tag\nSentence: 1,Anna,NN,B-PER\n,rows,NN,O\n")
    with pytest.raises(UserError, match=r"words\.\w+: tags in \w+ are not read; write JSON Lines"):
        read_tagged_file(str(tmp_path / name))


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a", "Anna B-PER\nrows O\n", "columns"),
        ("a", "Anna NNP\nrows VBZ\n. .\n", "columns"),  # not of entities, but labels
        ("a", "Anna b_org\nrows o\n", "columns"),  # not labels, but of entities
        ("a", "Anna B-PER\nrows\nhome O\n", "columns"),  # which is then refused
        ("a", "1\tAnna\n2\trows\n", "columns"),
        ("a", "-DOCSTART-\nAnna\n", "columns"),
        ("a", "Anna\nrows\n\nIda\n", "columns"),
        ("a", "Anna rows\tB-PER O\n", "sentences"),
        ("a", "Anna rows .\nIda waits .\n", None),
        ("a", "Anna\nrows\n", None),
        ("a", "Rain\n\nSnow\n", None),
        ("a", "1 Introduction\n2 Methods\n", None),
        ("a", "They drove down I-95\n", None),
        ("a", "", None),
        ("a.jsonl", '{"tokens": ["Anna"]}\n', "jsonl"),
        ("a.jsonl", '{"text": "Anna"}\n', None),
        ("a.tsv", "Anna\tB-PER\nrows\tO\n", "columns"),
        ("a.tsv", "text\n\nAnna\nrows\n", None),
        ("a.tsv", "1\tAnna\n2\trows\n", None),
        ("a.csv", "Anna B-PER\nrows O\n", None),
        ("a.parquet", "PAR1\udcff", None),
    ],
)
def test_files_of_tagged_words_are_told_from_plain_text_and_tables(tmp_path, name, text, expected):
    (tmp_path / name).write_bytes(text.encode(errors="surrogateescape"))
    labels = ("B-PER", "O", "NNP", "VBZ", ".")
    assert recognize_layout(str(tmp_path / name), labels, word_column=0, tag_column=-1) == expected


def test_a_heading_of_plain_text_is_no_comment(tmp_path):
    found = read(tmp_path, "# width = 3 pixels\nRain\n", is_tagged=False, file_layout="sentences").sentences
    assert found[0] == tagged("# width = 3 pixels", None)


def test_sentences_per_line(tmp_path):
    tagged_file = read(tmp_path, "Anna rows home\tB-PER O O\n\nIda .\tB-PER O\n-DOCSTART-\nRain\tO\n")
    assert tagged_file.sentences == [
        *(tagged("Anna rows home", "B-PER O O", 0, 1), tagged("Ida .", "B-PER O", 0, 3)),
        tagged("Rain", "O", 1, 5),
    ]
    assert tagged_file.layout == "sentences"
    text = read(tmp_path, "Anna rows home .\n Rain  falls .\n", is_tagged=False, file_layout="sentences")
    assert text.sentences == [tagged("Anna rows home .", None), tagged("Rain falls .", None, 0, 2)]
    assert text.layout == "sentences"


@pytest.mark.parametrize(
    ("text", "is_tagged", "layout"),
    [
        ("Anna\tB-PER\nrows\tO\n", True, "columns"),
        ("New York\tB-LOC\nLos Angeles\tB-LOC\n", True, "columns"),
        ("Anna rows\tB-PER O\n", True, "sentences"),
        ("Anna rows\tB-PER O\nRain\tO\n", True, "sentences"),
        ("B-X Anna\nB-LOC Ashford\n", True, "columns"),
        ("Rain\n", False, "columns"),
        ("-DOCSTART-\nRain falls\n", False, "columns"),
        ("Anna B-PER\nrows O\n\nIda B-PER\n", False, "columns"),
        ("Anna rows .\t\nRain falls\t\n", False, "sentences"),
        ("New York\t\nis\t\nbig\t\n", False, "columns"),
    ],
)
def test_the_layout_is_found_out(tmp_path, text, is_tagged, layout):
    assert read(tmp_path, text, is_tagged=is_tagged).layout == layout


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("Anna NNP B-PER\nrows VBZ O\n", "B-PER O"),
        ("Anna rows\tB-PER O\n", "B-PER O"),
        ("Anna\tB-PER\nrows\t\n", None),
        ("Anna rows\tsome text here\n", None),
        ("Anna\nrows\n", None),
    ],
)
def test_tags_of_text_to_predict_are_read_where_they_are(tmp_path, text, tags):
    assert read(tmp_path, text, is_tagged=False).sentences == [tagged("Anna rows", tags)]


@pytest.mark.parametrize(
    "text",
    [
        *("Anna rows .\n", "Anna rows .\nIda waits .\n", "Anna NN\nrows VB\n\nIda NN\n", "Rain\n\nRain falls\n"),
        "Anna B-PER\nrows\nto O\n",  # a line that lost its tag
    ],
)
def test_text_that_may_be_in_either_layout_is_refused(tmp_path, text):
    assert "give file_layout=columns or file_layout=sentences" in refusal(tmp_path, text, is_tagged=False)
    tagged_file = read(tmp_path, text, is_tagged=False, file_layout="sentences")
    assert [" ".join(sentence.words) for sentence in tagged_file.sentences] == text.replace("\n\n", "\n").splitlines()


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("a O\n\nb X O\n", {}, "line 3: 3 columns, but line 1 has 2 (separated by blanks)"),
        ("a\tO\nb O\n", {}, "line 2: 1 column, but line 1 has 2 (separated by tabs)"),
        ("a O\n", {"tag_column": 2}, "line 1: 2 columns, so there is no tag_column=2 (counted from 0)"),
        ("a\nb\n", {}, "line 1: column 0 cannot be both the word and the tag; check word_column=0, tag_column=-1"),
        ("", {}, "has no sentences"),
        (NEWDOC.replace("\t", " "), {}, "line 4: 3 columns"),
        (GERMEVAL + "\n#\tO\tO\n", {}, "line 8: 3 columns"),  # a word
        ("a O\n# sent_id = 2\n", {}, "line 2: 4 columns"),  # inside a sentence
        ("a b\tO O\n# text = c d\ne f\tO O\n", {"file_layout": "sentences"}, "line 2: 1 column"),
        ("a B-PER\nb\nc O\n", {"is_tagged": False, "file_layout": "columns"}, "line 2: 1 column"),
        ("a\tO\nb\t\n", {}, "line 2: the tag of 'b' is empty"),
        ("a\tO\n\tO\n", {}, "line 2: no word in column 0"),
        ("a b\tO O\nc\tO\nd e\tO O O\n", {}, "line 3: 2 words but 3 tags"),
        ("a\tO\nb\tO\nc d\tO O\n", {}, "line 3: the tag 'O O' contains a blank; correct the line, or give file_lay"),
        ("a B-PER\n\nb O\nc B-\n", {}, "line 4: the tag 'B-' has no type; add it, or write 'B' for none"),
        (b"a O\n\nb\xff O\n", {}, "line 3: byte 0xff at byte 2"),
    ],
)
def test_bad_files_are_refused_with_the_line(tmp_path, text, arguments, message):
    assert message in refusal(tmp_path, text, **arguments)


def test_the_reason_for_not_scoring_predictions_is_logged(tmp_path, caplog):
    assert read(tmp_path, "Anna\tB-PER\nrows\t\n", is_tagged=False).sentences[0].tags is None
    assert "line 2: the tag of 'rows' is empty; correct the line; until then the file is tagged, but not" in caplog.text
    caplog.clear()
    assert read(tmp_path, "Anna\nrows\n", is_tagged=False).sentences[0].tags is None
    assert not caplog.text
    assert read(tmp_path, "Anna B-\nrows O\n", is_tagged=False).sentences[0].tags is None
    assert "line 1: the tag 'B-' has no type" in caplog.text


def test_iob2_in_another_notation_is_warned_of(caplog):
    warned = ("B_PER I_PER O", "b-per o", "b:per o", "PER-B PER-I O", "PER_B PER_I -", "(PER* * *) (LOC)")
    for number, tags in enumerate([*warned, "-LRB- . NN :", "O B-PER", "NOUN VERB X"], start=1):
        warn_of_other_notation(tags.split())
        found = caplog.text.count("their tags are written as B-PER, I-PER and O, not '")
        assert found == min(number, len(warned)), tags


KLUE = "## CHAR\tNE_TAG\n## klue-ner-0\t<섬:LC> 하\n섬\tB-LC\n \tO\n하\tO\n\t\n## klue-ner-1\t#\n#\tO\n\n"


def test_characters_of_klue_are_read_with_spaces_and_without_comments(tmp_path, caplog):
    tagged_file = read(tmp_path, KLUE, file_layout="characters")
    assert words_and_tags(tagged_file) == [("섬   하", "B-LC O O"), ("#", "O")]
    assert (tagged_file.layout, tagged_file.comments) == ("characters", {1, 2, 7})
    assert read(tmp_path, KLUE).layout == "columns"
    assert "words.txt has blanks as words; to read characters as text, give file_layout=characters" in caplog.text
    message = refusal(tmp_path, KLUE.replace("하\tO", "하다\tO"), file_layout="characters")
    assert "line 5: '하다' is not one character; correct it or file_layout" in message


def json_lines(tmp_path, *objects, name="words.jsonl", **arguments):
    (tmp_path / name).write_text("".join(json.dumps(values) + "\n" for values in objects))
    return read_tagged_file(str(tmp_path / name), **arguments)


def test_json_lines_are_read_as_columns(tmp_path):
    anna = {"id": "0", "tokens": ["# a = b", "Anna", " "], "ner_tags": ["O", "B-PER", "O"]}
    start, last = {"tokens": ["-DOCSTART-"], "ner_tags": ["O"]}, {"words": ["x y"], "tags": ["O"]}
    tagged_file = json_lines(tmp_path, anna, start, last, word_column=3)
    assert tagged_file.sentences == [
        TaggedSentence(("# a = b", "Anna", " "), ("O", "B-PER", "O"), 0, 1),
        TaggedSentence(("x y",), ("O",), 1, 3),
    ]
    assert tagged_file.lines == ["# a = b\tO", "Anna\tB-PER", " \tO", "", "-DOCSTART-\tO", "", "x y\tO", ""]
    assert (tagged_file.layout, tagged_file.separator, tagged_file.num_columns) == ("columns", "\t", 2)
    assert json_lines(tmp_path, last, name="text", file_layout="jsonl").sentences[0].words == ("x y",)
    for tags in ({}, {"ner_tags": [1, 0]}, {"ner_tags": []}, {"ner_tags": None}):  # those to predict need none
        (sentence, other) = json_lines(tmp_path, last, {"tokens": ["x y", "z"], **tags}, is_tagged=False).sentences
        assert (sentence.tags, other.words, other.tags) == (None, ("x y", "z"), None)
    assert recognize_layout(str(tmp_path / "words.jsonl"), (), word_column=0, tag_column=-1) == "jsonl"
    json_lines(tmp_path, {"text": "x", "tokens": [{"text": "x"}], "spans": []}, file_layout="characters")  # Prodigy's
    assert recognize_layout(str(tmp_path / "words.jsonl"), (), word_column=0, tag_column=-1) is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"tokens": ["a"], "ner_tags": [3]}, "line 2: ner_tags[0] is 3; it must be text"),
        ({"tokens": ["a"], "ner_tags": ["O", "O"]}, "line 2: 1 word but 2 tags"),
        ({"tokens": ["a"], "ner_tags": []}, "line 2: 1 word but 0 tags"),
        ({"tokens": ["a"]}, "line 2: no key 'ner_tags'; the keys are 'tokens'"),
        ({"text": "a"}, "line 2: no key 'tokens'; the keys are 'text'; file_layout=characters reads texts with spans"),
        ({"tokens": "a b", "ner_tags": ["O"]}, "line 2: tokens is 'a b'; it must be a list"),
        ({"tokens": ["a", ""], "ner_tags": ["O", "O"]}, "line 2: '' is empty or contains a tab"),
        ({"tokens": ["a\tb"], "ner_tags": ["O"]}, "line 2: 'a\\tb' is empty or contains a tab"),
    ],
)
def test_bad_json_lines_are_refused_with_the_line(tmp_path, values, message):
    with pytest.raises(UserError, match=re.escape(f"words.jsonl, {message}")):
        json_lines(tmp_path, {"tokens": ["a"], "ner_tags": ["B-X"]}, values)


_OSLO = {"start": 4, "end": 8, "label": "LOC"}
_OF_LABEL_STUDIO = {"start": 4, "end": 8, "text": "Oslo", "labels": ["LOC"]}
_RESULT = [{"type": "labels", "value": _OF_LABEL_STUDIO}, {"type": "choices", "value": {}}]


@pytest.mark.parametrize(
    "values",
    [
        {"label": [[4, 8, "LOC"]]},
        {"labels": [[4, 8, "LOC"]]},
        {"entities": [{"id": 1, "start_offset": 4, "end_offset": 8, "label": "LOC"}], "relations": []},
        {"tokens": [{"text": "In"}], "spans": [{**_OSLO, "token_start": 1}]},
        {"label": [_OF_LABEL_STUDIO]},
        [{"annotations": [{"was_cancelled": True}, {"result": _RESULT}], "data": {"text": "In\t\nOslo's"}}],
    ],
    ids=["doccano", "older doccano", "relations of doccano", "prodigy", "short label studio", "label studio"],
)
def test_spans_of_annotation_tools_are_tagged_characters(tmp_path, values, caplog):
    values = values if isinstance(values, list) else {"text": "In  Oslo's", **values}
    start = "\ufeff\n" if isinstance(values, list) else ""
    (file := tmp_path / "spans.json").write_text(start + json.dumps(values))
    with caplog.at_level("INFO", logger="absl"):
        tagged_file = read_tagged_file(str(file), file_layout="characters")
    (sentence,) = tagged_file.sentences
    assert sentence.words == tuple("In  Oslo's")
    assert sentence.tags == ("O",) * 4 + ("B-LOC", "I-LOC", "I-LOC", "I-LOC", "O", "O")
    assert tagged_file.layout == "characters" and "inside a word" not in caplog.text


def test_spans_inside_words_are_counted_and_texts_to_predict_need_none(tmp_path, caplog):
    with caplog.at_level("INFO", logger="absl"):
        json_lines(tmp_path, {"text": "in Oslo", "label": [[3, 4, "A"], [4, 7, "B"]]}, file_layout="characters")
    assert "2 of 2 spans begin or end inside a word, first in" in caplog.text and "line 1: 'O'" in caplog.text
    (sentence,) = json_lines(tmp_path, {"text": "서울"}, is_tagged=False, file_layout="characters").sentences
    assert (sentence.words, sentence.tags) == (("서", "울"), None)


def test_texts_without_an_annotation_to_learn_from_are_left_out(tmp_path, caplog):
    of_prodigy = [{"text": answer[:1], "spans": [], "answer": answer} for answer in ("accept", "reject", "ignore")]
    annotations = [{"result": []}], [], [{"was_cancelled": True}]
    of_label_studio = [{"data": {"text": "b"}, "annotations": given} for given in annotations]
    for objects in (of_prodigy, [of_label_studio]):
        for is_tagged, number in ((True, 1), (False, 3)):
            found = json_lines(tmp_path, *objects, file_layout="characters", is_tagged=is_tagged)
            assert len(found.sentences) == number
    assert caplog.text.count("2 texts without a finished or accepted annotation are left out") == 2


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"label": [[0, 3, "A"], [2, 4, "B"]]}, "the span B from 2 to 4 overlaps the span before it"),
        ({"label": [[0, 8, "A"]]}, "the span A from 0 to 8 is not a part of the text, which has 7 characters"),
        ({"label": [[2, 2, "A"]]}, "the span A from 2 to 2 is not a part of the text"),
        ({"label": [[0, 2]]}, "the span [0, 2] has no start, end and label"),
        ({"label": [[0, 2, "a b"]]}, "the span [0, 2, 'a b'] has no start, end and label without blanks"),
        ({"label": [{**_OF_LABEL_STUDIO, "end": 7}]}, "the span LOC from 4 to 7 is not 'Oslo'; count in characters"),
        ({"annotations": [{"result": []}] * 2}, "2 annotations; export the one to learn from"),
        ({"annotations": [3]}, "annotations[0] is 3; it must be"),
        ({"label": "A"}, "no spans; give them under one of the keys spans, entities, label, labels, [] for none"),
        ({"text": ""}, "no key 'text' with a text"),
    ],
)
def test_bad_spans_are_refused_with_the_line(tmp_path, values, message):
    with pytest.raises(UserError, match=re.escape(f"words.jsonl, line 1: {message}")):
        json_lines(tmp_path, {"text": "in Oslo", **values}, file_layout="characters")
