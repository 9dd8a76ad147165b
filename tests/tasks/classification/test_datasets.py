"""Every data set in its published layout, custom data sets, and every kind of bad row."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from official_bert.metrics.classification import METRICS, PROBABILITY_METRICS
from official_bert.support.errors import UserError
from official_bert.tasks.classification import records
from official_bert.tasks.classification.data import TextExample
from official_bert.tasks.classification.datasets import DATASETS, xnli

MRPC = "Quality|#1 ID|#2 ID|#1 String|#2 String"
STSB = "index|genre|filename|year|old_index|source1|source2|sentence1|sentence2"
STSB_ROW = "0|captions|MSRvid|2012test|0001|none|none"
QQP = "id|qid1|qid2|question1|question2|is_duplicate"
MNLI = "index|promptID|pairID|genre|p1|p2|p3|p4|sentence1|sentence2"
MNLI_ROW = "31193|31193n|slate|( a )|( b )|(ROOT|(ROOT"
AX = "Lexical Semantics|Predicate-Argument Structure|Logic|Knowledge|Domain|Premise|Hypothesis|Label"
XNLI = "language|gold_label|b1|b2|p1|p2|sentence1|sentence2|promptID|pairID"
KORNLI = "sentence1|sentence2|gold_label"
KORSTS = "genre|filename|year|id|score|sentence1|sentence2"
RELATION = {
    "sentence": "이슬이 만든 등대의 노래는 파도회가 불렀다.",
    "subject_entity": {"word": "파도회", "start_idx": 15, "end_idx": 17, "type": "ORG"},
    "object_entity": {"word": "이슬", "start_idx": 0, "end_idx": 1, "type": "PER"},
    "label": "org:members",
}


def table(*rows):
    return "".join(row.replace("|", "\t") + "\n" for row in rows)


def pairs_with_index(first, second, columns="sentence1|sentence2"):
    header = f"index|{columns}|label"
    return {
        "train": (
            *("train.tsv", header, f"0|A.|B.|{first}", f'1|C "d.|E.|{second}'),
            *((1, "A.", "B.", first, 0), (2, 'C "d.', "E.", second, 1)),
        ),
        "dev": ("dev.tsv", header, f"0|F.|G.|{second}", (1, "F.", "G.", second, 1)),
        "test": ("test.tsv", f"index|{columns}", "0|H.|I.", (1, "H.", "I.", None, None)),
    }


def klue(name, content, *example):
    """Return the sample of a task of KLUE, with one example for each split; its test set is not published."""
    text = json.dumps([{"guid": f"{name}-v1_dev_00000", **content}], ensure_ascii=False, indent=4)
    sample = {split: (f"{name}-v1.1_{split}.json", text, (0, *example)) for split in ("train", "dev")}
    return {**sample, "test": ({}, (0, *example[:2], None, None))}


# For each data set and split: a file in its published layout and its lines, or several files with their content; and
# for each example the number in its guid, the texts, the label and the parsed label.
LAYOUTS = {
    "cola": {
        "train": (
            *("train.tsv", 'gj04|1||The "boat left.', "gj04|0|*|Boat the left."),
            *((0, 'The "boat left.', None, "1", 1), (1, "Boat the left.", None, "0", 0)),
        ),
        "dev": ("dev.tsv", "gj04|0|*|Who left boat?", (0, "Who left boat?", None, "0", 0)),
        "test": ("test.tsv", "index|sentence", "0|The boat left.", (1, "The boat left.", None, None, None)),
    },
    "sst-2": {
        "train": ("train.tsv", "sentence|label", "a fine boat |1", (1, "a fine boat ", None, "1", 1)),
        "dev": ("dev.tsv", "sentence|label", "a slow boat |0", (1, "a slow boat ", None, "0", 0)),
        "test": ("test.tsv", "index|sentence", "0|a boat .", (1, "a boat .", None, None, None)),
    },
    "mrpc": {
        "train": ("train.tsv", f"\ufeff{MRPC}\r", '1|70|71|He said "go.|"Go.\r', (1, 'He said "go.', '"Go.', "1", 1)),
        "dev": ("dev.tsv", f"\ufeff{MRPC}", "0|72|73|A.|B\u2028b.", (1, "A.", "B\u2028b.", "0", 0)),
        "test": ("test.tsv", MRPC.replace("Quality", "index"), "0|74|75|C.|D.", (1, "C.", "D.", None, None)),
    },
    "sts-b": {
        "train": ("train.tsv", f"{STSB}|score", f'{STSB_ROW}|A "b.|C.|5.000', (1, 'A "b.', "C.", "5.000", 5.0)),
        "dev": ("dev.tsv", f"{STSB}|score", f"{STSB_ROW}|D.|E.|0.25", (1, "D.", "E.", "0.25", 0.25)),
        "test": ("test.tsv", STSB, f"{STSB_ROW}|F.|G.", (1, "F.", "G.", None, None)),
    },
    "qqp": {
        "train": (
            *("train.tsv", QQP, "1|21|22|How so?|Why so?|0", "2|23|24|torn", "in two?|Yes?|1", "3|25|26|A?|B?|1"),
            *((1, "How so?", "Why so?", "0", 0), (4, "A?", "B?", "1", 1)),
        ),
        "dev": ("dev.tsv", QQP, "201359|3|4|C?|D?|1", (1, "C?", "D?", "1", 1)),
        "test": ("test.tsv", "id|question1|question2", "0|E?|F?", (1, "E?", "F?", None, None)),
    },
    "mnli": {
        "train": (
            *("train.tsv", f"{MNLI}|label1|gold_label", f'7|{MNLI_ROW}|A.|B "b.|neutral|entailment'),
            (7, "A.", 'B "b.', "entailment", 1),
        ),
        "dev_matched": (
            *("dev_matched.tsv", f"{MNLI}|l1|l2|gold_label", f"9|{MNLI_ROW}|C.|D.|neutral|neutral|contradiction"),
            (9, "C.", "D.", "contradiction", 0),
        ),
        "dev_mismatched": (
            *("dev_mismatched.tsv", f"{MNLI}|gold_label", f"8|{MNLI_ROW}|E.|F.|neutral"),
            (8, "E.", "F.", "neutral", 2),
        ),
        "test_matched": ("test_matched.tsv", MNLI, f"5|{MNLI_ROW}|G.|H.", (5, "G.", "H.", None, None)),
        "test_mismatched": ("test_mismatched.tsv", MNLI, f"6|{MNLI_ROW}|I.|J.", (6, "I.", "J.", None, None)),
    },
    "qnli": pairs_with_index("entailment", "not_entailment", columns="question|sentence"),
    "rte": pairs_with_index("entailment", "not_entailment"),
    "wnli": pairs_with_index("0", "1"),
    "ax": {
        "dev": ("diagnostic-full.tsv", AX, "Named||||News|A.|B.|neutral", (1, "A.", "B.", "neutral", 2)),
        "test": ("diagnostic.tsv", "index|sentence1|sentence2", "0|A.|B.", (1, "A.", "B.", None, None)),
    },
    "xnli": {
        "train": (
            *("multinli/multinli.train.zh.tsv", "premise|hypo|label", "我 们|你|contradictory", "他|她|neutral"),
            *((1, "我 们", "你", "contradiction", 0), (2, "他", "她", "neutral", 2)),
        ),
        "dev": (
            *("xnli.dev.tsv", XNLI, "en|neutral|||||We|You|1|1n", 'zh|entailment|||||我|"你|1|1n'),
            *("fr|neutral|||||Nous|Vous|1|1n", "zh|contradiction|||||他|她|1|1n"),
            *((2, "我", '"你', "entailment", 1), (4, "他", "她", "contradiction", 0)),
        ),
        "test": ("xnli.test.tsv", XNLI, "zh|neutral|||||我|她|1|1n", (1, "我", "她", "neutral", 2)),
    },
    "imdb": {
        "train": (
            {"aclImdb/train/pos/0_9.txt": "Fine.<br />Go.", "aclImdb/train/neg/1_1.txt": "Bad."},
            *(("neg/1_1", "Bad.", None, "neg", 0), ("pos/0_9", "Fine.<br />Go.", None, "pos", 1)),
        ),
        "test": (
            {"aclImdb/test/pos/2_8.txt": "Good.", "aclImdb/test/neg/0_2.txt": "Poor."},
            *(("neg/0_2", "Poor.", None, "neg", 0), ("pos/2_8", "Good.", None, "pos", 1)),
        ),
    },
    "nsmc": {
        "train": (
            *("ratings_train.txt", "id|document|label", '99|"""좋다 """"정말"""""""|1', "98||0"),
            *((1, '좋다 "정말"', None, "1", 1), (2, "", None, "0", 0)),
        ),
        "test": ("ratings_test.txt", "id|document|label", "97|별로|0", (1, "별로", None, "0", 0)),
    },
    "ynat": klue("ynat", {"title": "배가 항구에 닿다", "label": "IT과학"}, "배가 항구에 닿다", None, "IT과학", 5),
    "klue_nli": klue(
        *("klue-nli", {"premise": "배가 빠르다", "hypothesis": "배다", "gold_label": "entailment"}),
        *("배가 빠르다", "배다", "entailment", 1),
    ),
    "klue_sts": klue(
        "klue-sts",
        {"sentence1": "넓다.", "sentence2": "넓은 바다.", "labels": {"label": 3.7, "real-label": 3.714285714285714}},
        *("넓다.", "넓은 바다.", "3.714285714285714", 3.714285714285714),
    ),
    "klue_re": klue(
        *("klue-re", RELATION, "<obj>이슬</obj>이 만든 등대의 노래는 <subj>파도회</subj>가 불렀다."),
        *(None, "org:members", 6),
    ),
    "kornli": {
        "train": (
            {
                "multinli.train.ko.tsv": table(KORNLI, '바람이 "분다|맑다|neutral'),
                "snli_1.0_train.ko.tsv": table(KORNLI, "배를 탄 사람|섬에서|contradiction"),
            },
            *((1, '바람이 "분다', "맑다", "neutral", 2), (2, "배를 탄 사람", "섬에서", "contradiction", 0)),
        ),
        "dev": ("xnli.dev.ko.tsv", KORNLI, "왔다|있다|entailment", (1, "왔다", "있다", "entailment", 1)),
        "test": ("xnli.test.ko.tsv", KORNLI, "간다|선다|contradiction", (1, "간다", "선다", "contradiction", 0)),
    },
    "korsts": {
        split: (
            *(f"sts-{split}.tsv", KORSTS, '0|MSRvid|2012|1|5.000|"배가 뜬다.|떠난다.'),
            (1, '"배가 뜬다.', "떠난다.", "5.000", 5.0),
        )
        for split in ("train", "dev", "test")
    },
}


def write_files(folder, contents):
    for name, content in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8", newline="")


def write_sample(folder, name):
    """Write the files of a data set; return its examples by split."""
    examples = {}
    for split, (file, *rest) in LAYOUTS[name].items():
        examples[split] = [row for row in rest if isinstance(row, tuple)]
        lines = rest[: len(rest) - len(examples[split])]
        write_files(folder, file if isinstance(file, dict) else {file: table(*lines)})
    return examples


@pytest.mark.parametrize("name", DATASETS)
def test_each_set_is_read_in_its_published_layout(tmp_path, name):
    expected, dataset = write_sample(tmp_path, name), DATASETS[name]
    assert list(dataset.splits) == list(expected)
    for split, rows in expected.items():
        examples = dataset.examples(str(tmp_path), split)
        guid = "test" if split == "test_matched" else split  # as in the reference
        assert [example[:4] for example in examples] == [(f"{guid}-{row[0]}", *row[1:4]) for row in rows]
        if dataset.splits[split].label is not None:
            assert dataset.check_labels(examples) == [row[4] for row in rows]


def test_metrics_are_those_of_glue_and_every_set_has_labelled_splits_to_evaluate():
    metrics = {name: dataset.primary_metric for name, dataset in DATASETS.items() if dataset.metrics != ("accuracy",)}
    assert metrics == {
        "cola": "matthews_correlation", "mrpc": "accuracy_f1_mean", "qqp": "accuracy_f1_mean",
        "sts-b": "pearson_spearman_mean", "ax": "matthews_correlation", "ynat": "macro_f1", "klue_sts": "pearson",
        "klue_re": "micro_f1", "korsts": "spearman",
    }  # fmt: skip
    for dataset in DATASETS.values():
        assert set(dataset.metrics) <= METRICS.keys() | PROBABILITY_METRICS.keys()
        assert dataset.eval_splits
        assert all(dataset.splits[split].label is not None for split in dataset.eval_splits)
    assert DATASETS["mnli"].eval_splits == ("dev_matched", "dev_mismatched")
    assert DATASETS["mnli"].test_splits == ("test_matched", "test_mismatched")
    assert DATASETS["imdb"].eval_splits == DATASETS["imdb"].test_splits == ("test",)  # labelled, no dev split


def test_the_names_of_a_file_are_tried_in_order(tmp_path):
    with pytest.raises(UserError, match=r"there is no .*/diagnostic\.tsv and no .*/AX\.tsv; check the path"):
        DATASETS["ax"].examples(str(tmp_path), "test")
    write_files(tmp_path, {"AX.tsv": "index\tsentence1\tsentence2\n0\tA.\tB.\n"})
    assert DATASETS["ax"].examples(str(tmp_path), "test")[0].text_a == "A."
    write_files(tmp_path, {"diagnostic.tsv": "index\tsentence1\tsentence2\n0\tC.\tD.\n"})
    assert DATASETS["ax"].examples(str(tmp_path), "test")[0].text_a == "C."
    write_files(tmp_path, {"train/neg/0_1.txt": "E.", "train/pos/0_9.txt": "F."})
    assert [example.text_a for example in DATASETS["imdb"].examples(str(tmp_path), "train")] == ["E.", "F."]


def test_xnli_in_another_language_with_other_training_texts(tmp_path):
    write_sample(tmp_path, "xnli")
    write_files(tmp_path, {"multinli/multinli.train.en.tsv": table("premise|hypo|label", "A|B|neutral")})
    english = xnli("en")
    assert [example.text_a for example in english.examples(str(tmp_path), "train")] == ["A"]
    assert [example[:2] for example in english.examples(str(tmp_path), "dev")] == [("dev-1", "We")]
    crossing = xnli("fr", train_file="multinli/multinli.train.en.tsv")
    assert [example.text_a for example in crossing.examples(str(tmp_path), "train")] == ["A"]
    assert [example.text_a for example in crossing.examples(str(tmp_path), "dev")] == ["Nous"]
    with pytest.raises(UserError, match=r"xnli\.dev\.tsv has no examples with 'tlh' in the first column"):
        xnli("tlh").examples(str(tmp_path), "dev")


def test_torn_rows_of_qqp_and_empty_texts_are_warned_of(tmp_path, caplog):
    for name in ("qqp", "nsmc"):
        write_sample(tmp_path / name, name)
        DATASETS[name].examples(str(tmp_path / name), "train")
    assert "qqp/train.tsv: skipped 2 rows with fewer than 6 columns" in caplog.text
    assert "ratings_train.txt: 1 of 2 examples have an empty text" in caplog.text


COLA_ROW = "gj04\t1\t\tThe boat left.\n"
BAD_RELATION = json.dumps([{**RELATION, "object_entity": {"start_idx": 1, "end_idx": 50}}])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("cola", None, r"there is no .*/dev\.tsv; check the path"),
        ("cola", "", r"dev\.tsv has no examples"),
        ("mrpc", "", r"dev\.tsv is empty"),
        ("mrpc", table(MRPC), r"dev\.tsv has no examples"),
        ("cola", COLA_ROW + "gj04\t1\tThe boat.\n", r"line 2: 3 columns, but 4 are required; the row begins 'gj04'$"),
        ("mrpc", table(MRPC, *["1|2|A.|B."] * 3), r"line 2: 4 columns, but 5 .* begins '1' \(3 bad rows in all\)$"),
        ("cola", COLA_ROW + "\n" + COLA_ROW, "line 2: a blank line; remove it"),
        ("rte", "index\tfirst\tsentence2\tlabel\n", "line 1: no column 'sentence1'; .* 'index', 'first', 'sentence2'"),
        ("ynat", '{"title": "A."}', "dev.json contains a JSON dict; the table must be a list"),
        ("ynat", '[{"title": "A."}, 5]', r"dev.json: \[1\] is 5; it must be an object"),
        ("ynat", '[{"title": "A."}]', "dev.json, example 0: no key 'label'; the keys are 'title'"),
        ("klue_re", BAD_RELATION, r"example 0: start_idx and end_idx of object_entity are \[1, 50\]; they must be pl"),
        ("cola", b"gj04\t1\t\tcaf\xe9\n", r"dev\.tsv, line 1: byte 0xe9 .* not UTF-8"),
    ],
)
def test_bad_files_are_refused_with_file_and_line(tmp_path, name, content, message):
    (file,) = DATASETS[name].splits["dev"].names
    if content is not None:
        (tmp_path / file).write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(UserError, match=message):
        DATASETS[name].examples(str(tmp_path), "dev")


def test_a_missing_folder_and_a_missing_part_are_refused(tmp_path):
    with pytest.raises(UserError, match="there is no folder .*/absent with the files of cola"):
        DATASETS["cola"].examples(str(tmp_path / "absent"), "train")
    with pytest.raises(UserError, match="the data set ax has no split 'train'; it has 'dev', 'test'"):
        DATASETS["ax"].examples(str(tmp_path), "train")


def labelled(*labels):
    return [TextExample(f"dev-{n}", "A.", None, label, f"dev.tsv, line {n}") for n, label in enumerate(labels, 1)]


@pytest.mark.parametrize(
    ("name", "labels", "message"),
    [
        ("cola", ["1", "2"], "line 2: label '2' is not one of '0', '1'"),
        ("cola", ["1", "", "1 "], "line 2: label '' is not one of '0', '1' (2 bad rows in all)"),
        ("sts-b", ["5.01", "-0.1"], "line 1: label '5.01' is not a finite number from 0 to 5 (2 bad rows in all)"),
    ],
)
def test_bad_labels_are_refused_with_what_is_allowed(name, labels, message):
    with pytest.raises(UserError) as error:
        DATASETS[name].check_labels(labelled(*labels))
    assert str(error.value) == f"dev.tsv, {message}"


# Custom data sets.


def custom_dataset(*, text_a_column, text_b_column=None, train_file=None, eval_file=None, predict_file=None, **options):
    paths = {"train": train_file, "dev": eval_file, "test": predict_file}
    columns = [column for column in (text_a_column, text_b_column) if column is not None]
    return records.custom_dataset({split: path for split, path in paths.items() if path}, columns, **options)


def write(path, content):
    path.write_text(content, encoding="utf-8", newline="")
    return str(path)


@pytest.fixture
def boats(tmp_path):
    """The same two examples in every format; the second has no id."""
    columns = {"more": ["A.", "B, b."], "n": [1, 2], "text": ['It "smokes.', "It leans."], "kind": ["steam", "sail"]}
    pq.write_table(pa.table({**columns, "id": [7, None]}), tmp_path / "boats.parquet")
    contents = {
        ".tsv": table("kind|text|more|id", 'steam|It "smokes.|A.|7', "sail|It leans.|B, b."),
        ".CSV": '\ufeffkind,text,more,id\r\nsteam,"It ""smokes.",A.,7\r\nsail,It leans.,"B, b.",\r\n',
        ".jsonl": '{"text": "It \\"smokes.", "kind": "steam", "more": "A.", "id": 7}\n'
        '{"more": "B, b.", "kind": "sail", "text": "It leans."}\n',
    }
    paths = {ending: write(tmp_path / f"boats{ending}", content) for ending, content in contents.items()}
    return {**paths, ".parquet": str(tmp_path / "boats.parquet")}


@pytest.mark.parametrize("ending", [".tsv", ".CSV", ".jsonl", ".parquet"])
def test_own_data_in_each_format_by_name_and_by_number(boats, ending):
    path = boats[ending]
    numbers = {".tsv": ("1", "2", "0"), ".CSV": (1, 2, 0)}.get(ending, ("text", "more", "kind"))
    for text_a, text_b, label in (numbers, ("text", "more", "kind")):
        columns = {"text_a_column": text_a, "text_b_column": text_b, "label_column": label}
        dataset = custom_dataset(**columns, train_file=path, predict_file=path)
        assert dataset.labels == ("sail", "steam")
        examples = dataset.examples(None, "train")
        first, second = (example[1:4] for example in examples)
        assert (first, second) == (('It "smokes.', "A.", "steam"), ("It leans.", "B, b.", "sail"))
        places = {".jsonl": ["line 1", "line 2"], ".parquet": ["row 0", "row 1"]}.get(ending, ["line 2", "line 3"])
        assert [example.where for example in examples] == [f"{path}, {place}" for place in places]
        assert dataset.check_labels(examples) == [1, 0]
        # Row numbers do not depend on the format.
        assert [(example.guid, example.id) for example in examples] == [("train-0", "7"), ("train-1", "")]
        assert [example.label for example in dataset.examples(None, "test")] == [None, None]
        assert (list(dataset.splits), dataset.eval_splits) == (["train", "test"], ())
        assert dataset.metrics == ("accuracy", "f1")


def test_labels_of_parquet_are_strings_numbers_and_lists(tmp_path):
    path = str(tmp_path / "p.parquet")
    columns = {"t": ["a", "b"], "n": [3, 4], "x": [1.5, -2.0], "l": [["p", "q"], []]}
    columns |= {"none": ["p", None], "d": [b"p", b"q"]}
    pq.write_table(pa.table(columns), path)
    for column, problem, labels in (
        ("n", "single_label", ["3", "4"]),
        ("x", "regression", ["1.5", "-2.0"]),
        ("l", "multi_label", ["p,q", ""]),
    ):
        dataset = custom_dataset(text_a_column="t", label_column=column, train_file=path, problem=problem)
        assert [example.label for example in dataset.examples(None, "train")] == labels
    messages = {"none": "row 1: the label is None", "d": "row 0: the label is b'p'", "z": "no column"}
    for column, message in messages.items():
        with pytest.raises(UserError, match=message):
            custom_dataset(text_a_column="t", label_column=column, train_file=path)


@pytest.mark.parametrize("column", ["id", "0"])
def test_a_column_of_ids_that_is_read_as_text_is_no_id(tmp_path, column):
    for name, content in (("t.tsv", "id\tx\na b\tc\n"), ("t.jsonl", '{"id": "a b", "0": "a b"}\n')):
        path = write(tmp_path / name, content)
        dataset = custom_dataset(text_a_column=column, predict_file=path, labels=["p", "q"])
        (example,) = dataset.examples(None, "test")
        assert (example.text_a, example.id) == ("a b", "a b" if (name, column) == ("t.jsonl", "0") else None)


def test_a_named_column_of_ids_is_kept_and_must_exist(boats):
    for path in boats.values():
        options = {"text_a_column": "text", "predict_file": path, "labels": ["sail", "steam"]}
        for column, ids in (("more", ["A.", "B, b."]), ("text", ['It "smokes.', "It leans."]), (None, ["7", ""])):
            examples = custom_dataset(**options, id_column=column).examples(None, "test")
            assert [example.id for example in examples] == ids
            labelled = custom_dataset(**options, id_column=column, eval_file=path, label_column="kind")
            assert [example.id for example in labelled.examples(None, "dev")] == ids
        with pytest.raises(UserError, match="no (column|key) 'nr'; the (column|key)s are .*'kind'"):
            custom_dataset(**options, id_column="nr").examples(None, "test")
        labelled = custom_dataset(**options, id_column="nr", eval_file=path, label_column="kind")
        assert not any(example.id for example in labelled.examples(None, "dev"))
    options = {"text_a_column": "1", "labels": ["sail", "steam"], "has_header": False}
    examples = custom_dataset(**options, predict_file=boats[".CSV"], id_column="0").examples(None, "test")
    assert [example.id for example in examples] == ["kind", "steam", "sail"]
    with pytest.raises(UserError, match="4 columns, but 10 are required"):
        custom_dataset(**options, predict_file=boats[".CSV"], id_column="9").examples(None, "test")


def test_own_data_without_header(tmp_path):
    path = write(tmp_path / "boats.txt", "steam\tIt smokes.\nsail\tIt leans.\nrow\tIt is slow.\n")
    dataset = custom_dataset(text_a_column="1", label_column="0", train_file=path, has_header=False)
    assert dataset.labels == ("row", "sail", "steam")
    assert dataset.examples(None, "train")[0][:2] == ("train-0", "It smokes.")
    assert dataset.metrics == ("accuracy",)
    for column, has_header in (("text", False), (-1, False), (-1, True)):
        with pytest.raises(UserError, match=f"column {column!r}: give its number, counted from 0, or with a header"):
            custom_dataset(text_a_column=column, label_column="0", train_file=path, has_header=has_header)


def test_given_labels_keep_their_order_and_are_the_only_ones(boats):
    arguments = {"text_a_column": "text", "label_column": "kind", "eval_file": boats[".CSV"]}
    dataset = custom_dataset(**arguments, labels=["steam", "sail"])
    assert dataset.check_labels(dataset.examples(None, "dev")) == [0, 1]
    assert custom_dataset(**arguments, labels=["steam", "sail"], is_ranking=True).primary_metric == "mrr@10"
    message = "ranking=True needs regression=True, or two labels .*; the labels are 'a', 'b', 'c'"
    with pytest.raises(UserError, match=message):
        custom_dataset(**arguments, labels=["a", "b", "c"], is_ranking=True)
    strict = custom_dataset(**arguments, labels=["steam", "row"])
    with pytest.raises(UserError, match=r"boats\.CSV, line 3: label 'sail' is not one of 'steam', 'row'$"):
        strict.check_labels(strict.examples(None, "dev"))


def test_several_labels_per_example(tmp_path):
    table_file = write(tmp_path / "boats.tsv", "text\tkinds\nA.\tsteam,fast\nB.\t\nC.\t sail , fast,\n")
    kinds = {"A.": ["steam", "fast"], "B.": [], "C.": "sail,fast"}
    lines = [json.dumps({"text": text, "kinds": given}) for text, given in kinds.items()]
    for file in (table_file, write(tmp_path / "boats.json", "\n".join(lines))):
        dataset = custom_dataset(text_a_column="text", label_column="kinds", train_file=file, problem="multi_label")
        assert dataset.labels == ("fast", "sail", "steam")
        assert dataset.check_labels(dataset.examples(None, "train")) == [(1, 0, 1), (0, 0, 0), (1, 1, 0)]
        assert dataset.primary_metric == "micro_f1"
        message = "line 1: label 'slow' is not one of 'fast', 'sail', 'steam', the labels of /.*"
        with pytest.raises(UserError, match=message):
            dataset.parse_label(labelled("fast,slow")[0])


def test_numbers_to_predict(tmp_path):
    path = write(tmp_path / "boats.jsonl", '{"t": "A.", "y": -1.5e3}\n{"t": "B.", "y": "7"}\n')
    dataset = custom_dataset(text_a_column="t", label_column="y", train_file=path, problem="regression")
    assert dataset.check_labels(dataset.examples(None, "train")) == [-1500.0, 7.0]
    assert (dataset.labels, dataset.primary_metric) == ((), "pearson_spearman_mean")
    for bad in ("inf", "nan", "", "1,5", "1e300"):
        with pytest.raises(UserError, match=f"line 1: label '{bad}' is not a finite number$"):
            dataset.parse_label(labelled(bad)[0])


ROWS = "t\tk\nA.\tp\nB.\tq\n"
MANY = {"problem": "multi_label"}


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("b.tsv", ROWS, {"text_a_column": "x"}, "b.tsv, line 1: no column 'x'; the columns are 't', 'k'"),
        ("b.tsv", ROWS, {"text_a_column": "4"}, "b.tsv, line 1: no column 4, counted from 0; the columns are 't', 'k'"),
        ("b.tsv", ROWS, {"label_column": None}, "training and evaluation need labels; give label_column"),
        ("b.tsv", ROWS, {"labels": ["q", "p", "q"]}, "the labels 'q', 'p', 'q' name a class twice"),
        ("b.tsv", ROWS, {"train_file": None}, "the labels are unknown; give labels=... or train_file"),
        ("b.tsv", ROWS, {"train_file": "a.csv"}, "there is no a.csv; check the path"),
        ("b.xml", ROWS, {}, "b.xml: the file name must end in one of .tsv, .txt, .csv, .jsonl, .json, .parquet"),
        ("b.csv", "t,k,t\na,p,y\n", {}, "b.csv, line 1: 2 columns are named 't'; rename all but one"),
        ("b.csv", "t,k\na,p\na, b,q\n", {}, "b.csv, line 3: 3 columns, but the header has 2; does a text contain the"),
        ("b.csv", "t,k, ,\na,p,,\na, b,q,\n", {}, "b.csv, line 3: 4 columns, but the header has 2; does a text"),
        ("b.csv", "t;k\na;p\n", {}, "line 1: no column 't'; the columns are 't;k'; are they separated by semicolons?"),
        ("b.csv", "t;k\na;p\n", {"label_column": "1"}, "are they separated by semicolons? A .csv file has commas"),
        ("b.csv", "t\tk\na\tp\n", {}, "are they separated by tabs? A .csv file has commas"),
        ("b.tsv", "t,k\na,p\n", {}, "are they separated by commas? A .csv file has commas"),
        ("b.csv", "t;,k\na,p\n", {}, "no column 't'; the columns are 't;', 'k'"),
        ("b.tsv", "t\tk\nA.\tp\n", {}, "the label column of custom has 'p'; at least two labels are required"),
        ("b.tsv", f"{ROWS}C.\t\n", {}, "line 4: label '' is not one of 'p', 'q'"),
        ("b.json", '{"t": 1, "k": 1}\n\n{\n{}', {}, "b.json, line 1: 't' is 1; a text must be a string (4 bad rows"),
        ("b.json", '{"t": "A.", "k": null}', {}, "line 1: the label is None; it must be a string or a number, or with"),
        ("b.json", '{"t": "A.", "k": NaN}', {}, "line 1: the label is nan; it must be a string or a number, or with"),
        ("b.json", '{"t": "A.", "k": {"x": 1}}', MANY, "line 1: the label is {'x': 1}; it must be a string"),
        ("b.json", '{"t": "A.", "k": ["x"]}', {}, "line 1: the label is ['x']; it must be a string"),
        ("b.json", '{"t": "A.", "k": ["x,y"]}', MANY, "'x,y' in a list must be a string without the delimiter ','"),
        ("b.json", '{"t": "A.", "k": [1]}', MANY, "the label 1 in a list must be a string"),
    ],
)
def test_own_data_that_does_not_fit_is_refused(tmp_path, name, content, options, message):
    path = write(tmp_path / name, content)
    with pytest.raises(UserError) as error:
        dataset = custom_dataset(**{"text_a_column": "t", "label_column": "k", "train_file": path, **options})
        dataset.check_labels(dataset.examples(None, "train"))
    assert message in str(error.value)


def test_labels_that_occur_once_are_warned_of(tmp_path, caplog):
    path = write(tmp_path / "reviews.tsv", table("text|label", "a|good", "b|good", "c|bad", "d|bad", "e|god"))
    custom_dataset(text_a_column="text", label_column="label", train_file=path)
    assert "labels that occur only once: 'god'; are they misspelt?" in caplog.text


def test_labels_but_not_texts_lose_the_white_space_around_them(tmp_path):
    table_file = write(tmp_path / "reviews.csv", "text,label\n a ,good\nb, good\nc,bad \n")
    json_file = write(tmp_path / "reviews.jsonl", '{"text": " a ", "label": "good "}\n{"text": "c", "label": "bad"}\n')
    for file in (table_file, json_file):
        dataset = custom_dataset(text_a_column="text", label_column="label", train_file=file)
        assert dataset.labels == ("bad", "good")
        examples = dataset.examples(None, "train")
        assert set(dataset.check_labels(examples)) == {1, 0}
        assert (examples[0].text_a, examples[0].label) == (" a ", "good")


@pytest.mark.parametrize("problem", ["single_label", "multi_label"])
def test_labels_that_differ_in_case_must_be_listed_to_be_two(tmp_path, problem):
    path = write(tmp_path / "reviews.tsv", "text\tlabel\na\tPositive\nb\tnegative\nc\tpositive \nd\tPositive\n")
    arguments = {"text_a_column": "text", "label_column": "label", "train_file": path, "problem": problem}
    with pytest.raises(UserError) as error:
        custom_dataset(**arguments)
    assert str(error.value) == (
        f"{path}, line 4: label 'positive' differs only in case from 'Positive' ({path}, line 2); use one spelling or, "
        "if they are two labels, list all: labels=..."
    )
    dataset = custom_dataset(**arguments, labels=["Positive", "positive", "negative"])
    assert len(dataset.check_labels(dataset.examples(None, "train"))) == 4


def test_columns_of_equal_names_are_no_mistake_if_they_are_not_read_by_name(tmp_path):
    arguments = {"label_column": "kind", "train_file": write(tmp_path / "b.csv", "a,b,kind,b\na,x,p,y\nb,x,q,y\n")}
    assert custom_dataset(text_a_column="a", **arguments).labels == ("p", "q")
    assert custom_dataset(text_a_column="1", **arguments).examples(None, "train")[0].text_a == "x"
