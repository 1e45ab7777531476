"""The study of a sweep in its folder."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainer_hooks.errors import UsageError

optuna = pytest.importorskip("optuna", minversion="4.9")

from trainer_hooks.cli.sweep.study import SweepDefinition, SweepStudy  # noqa: E402

FIRST = SweepDefinition("run.yaml", "", ["a=1,2"], "val_loss", "min", "grid", "none", 0)
SECOND = replace(FIRST, settings=["a=3,4"])


def test_a_sweep_without_a_result_makes_way_for_another(tmp_path, capsys) -> None:
    """All that it left is kept below; a sweep with a result, or an unfinished trial, stays."""
    first = SweepStudy.begin(tmp_path, FIRST)
    first.prepare()
    first.study.tell(first.ask(), state=optuna.trial.TrialState.FAIL)
    (tmp_path / "trial_0").mkdir()
    second = SweepStudy.begin(tmp_path, SECOND)
    assert "has no result; it is now in" in capsys.readouterr().err
    assert sorted(path.name for path in (tmp_path / "earlier_0").glob("[st]*[0g]")) == [
        "study.log", "trial_0",
    ]  # fmt: skip
    assert not (tmp_path / "trial_0").exists()
    assert second.study.get_trials() == []

    second.prepare()
    number = second.ask()
    with pytest.raises(UsageError, match="holds a sweep with other choices: --set a=3,4"):
        SweepStudy.begin(tmp_path, FIRST)
    second.study.tell(number, 1.0)
    with pytest.raises(UsageError, match="holds a sweep with other choices"):
        SweepStudy.begin(tmp_path, FIRST)
