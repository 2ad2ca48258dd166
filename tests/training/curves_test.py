import csv
import io

import pytest

from gnmt_tf import cli
from gnmt_tf.config import UserError
from gnmt_tf.training.curves import Curve, Point, draw_curves, read_curve, write_table

POINTS = [Point(10, 5.5, None, None), Point(20, 4.5, None, None), Point(20, None, 4.25, 1.5)]


def test_a_curve_holds_every_row_of_the_log(trained_model):
    curve = read_curve(str(trained_model))
    assert curve.constrained
    assert [p.step for p in curve.points if p.train_log_perplexity is not None] == list(range(1, 13))
    assert [p.step for p in curve.points if p.dev_log_perplexity is not None] == [6, 12]


def test_the_table_has_one_line_for_each_row():
    file = io.StringIO()
    write_table([Curve("a", True, POINTS), Curve("b", False, POINTS[:1])], file)
    assert file.getvalue().splitlines() == [
        "model_dir,constrained,step,train_log_perplexity,dev_log_perplexity,dev_bleu",
        "a,true,10,5.5,,",
        "a,true,20,4.5,,",
        "a,true,20,,4.25,1.5",
        "b,false,10,5.5,,",
    ]


def test_the_figure_has_a_line_for_training_and_one_for_development():
    figure = draw_curves([Curve("runs/a", True, POINTS), Curve("runs/b", False, POINTS)])
    lines = {line.get_label(): line.get_xydata().tolist() for line in figure.axes[0].get_lines()}
    assert lines == {
        "a, constrained: training": [[10, 5.5], [20, 4.5]],
        "a, constrained: development": [[20, 4.25]],
        "b, unconstrained: training": [[10, 5.5], [20, 4.5]],
        "b, unconstrained: development": [[20, 4.25]],
    }


def test_models_of_the_same_name_are_told_apart_by_their_paths():
    figure = draw_curves([Curve("one/model", True, POINTS[:1]), Curve("two/model", True, POINTS[:1])])
    labels = [line.get_label() for line in figure.axes[0].get_lines()]
    assert labels == ["one/model, constrained: training", "two/model, constrained: training"]


def test_the_command_writes_figure_and_table(trained_model, tmp_path, capsys):
    output = tmp_path / "figure 4"
    assert cli.run(["report", "curves", str(trained_model), "--output", str(output)]) == 0
    assert capsys.readouterr().out.splitlines() == [f"{output}.png", f"{output}.csv"]
    with open(f"{output}.png", "rb") as file:
        assert file.read(8) == b"\x89PNG\r\n\x1a\n"
    with open(f"{output}.csv", newline="") as file:
        assert len(list(csv.DictReader(file))) == 14


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "KIND: expected one of curves, pruning, quantization, attention, got nothing"),
        (["curve"], "KIND: expected one of curves, pruning, quantization, attention, got 'curve'"),
        (["curves"], "MODEL_DIR: expected at least one model directory, got none"),
        (["curves", "missing"], "--model_dir missing: expected a model directory"),
    ],
)
def test_what_is_no_report_is_refused(arguments, message, capsys):
    assert cli.run(["report", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_model_without_a_log_is_refused(model_copy):
    (model_copy / "logs" / "training.csv").unlink()
    with pytest.raises(UserError, match="a log with at least one row"):
        read_curve(str(model_copy))
