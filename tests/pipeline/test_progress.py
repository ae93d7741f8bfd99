"""Progress where the output is no terminal: a line now and then, counts that add up."""

from __future__ import annotations

from concept_audit.pipeline.progress import Progress


def test_the_last_line_counts_what_was_done_skipped_and_failed(capsys):
    with Progress("train", 4, every_s=1e9) as progress:
        progress.finish("skipped")
        progress.partial("group", 1.5)
        progress.finish("done", 2, name="group")
        progress.finish("failed")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("train: 100% of 4 (2 done, 1 already there, 1 failed)")


def test_a_late_report_of_a_finished_group_counts_no_more(capsys):
    with Progress("train", 2, every_s=1e9) as progress:
        progress.finish("done", 1, name="group")
        progress.partial("group", 1.0)
    assert "50% of 2 (1 done" in capsys.readouterr().err


def test_the_time_left_follows_the_share_that_is_done(capsys):
    with Progress("train", 10, every_s=0.0) as progress:
        progress.partial("group", 5.0)
        assert "50% of 10" in capsys.readouterr().err
        progress.partial("group", 10.0)
    assert "left" not in capsys.readouterr().err.splitlines()[-1]


def test_nothing_to_do_prints_nothing(capsys):
    with Progress("train", 0):
        pass
    assert capsys.readouterr().err == ""
