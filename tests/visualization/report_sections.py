"""Generated sections of a report, for tests of its pages."""

from official_bert.visualization.report_page import (
    Bar,
    Bars,
    Matrix,
    Mistake,
    Mistakes,
    Part,
    Reliability,
    Scatter,
    Scores,
    Table,
    Text,
)

KOREAN, HEBREW = "따뜻한 항구의 마을", "הנמל החם של העיר"


def made_sections(text="warm harbour", *, num_mistakes=2, context="The harbour. " * 200):
    """Return one section of each kind, with a text wherever user text may occur."""
    parts = [Part(context), Part(text, "gold", "PLACE"), Part(context), Part("bridge", "gold predicted"), Part(context)]
    mistake = Mistake({"gold": text, "predicted": KOREAN}, [Text("question", [Part(text)]), Text("", parts)])
    return [
        Scores(title="Scores", values={"eval_accuracy": 0.80637254, "loss": float("nan"), "global_step": 343}),
        Matrix(title="Confusion", names=[text, KOREAN], counts=[[7, 0], [1, 2]], note=text),
        Table(title="By label", columns=["label", "F1"], rows=[(text, 0.5), (HEBREW, 1 / 3)]),
        Reliability(title="Calibration", bins=[(0.0, 0.5, 0, 0.0, 0.0), (0.5, 1.0, 10, 0.75, 0.5)]),
        Bars(title="Length", parts=["a", "b"], bars=[Bar("0–9", (3, 1), "75.0%"), Bar("10+", (0, 0), "")], axis="x"),
        Scatter(title="Predicted over gold", points=[(0.0, 0.0), (2.0, 5.0), (5.0, 1.0)]),
        Mistakes(title="Mistakes", mistakes=[mistake] * num_mistakes, note="The worst."),
        Mistakes(title="No mistakes", mistakes=[]),
    ]


def largest_sections():
    """Return sections of maximum size: long contexts and 2,000 points."""
    sections = made_sections(num_mistakes=25, context="따뜻한 항구 " * 3_000)
    sections[5] = Scatter(title="Scatter", points=[(number % 77, number % 91) for number in range(2_000)])
    return sections
