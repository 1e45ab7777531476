"""MetricStore: what is taken in from where, and what callbacks, loggers and bars find."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import pytest
import torch

from trainer_hooks.errors import MetricError, TrainerHooksWarning
from trainer_hooks.metrics.store import LogScope, MetricStore, floats

numpy = pytest.importorskip("numpy")


def log(store, name, value, *, batch_size=None, enable_graph=False, **options):
    """Log as Module.log does."""
    call = {
        "prog_bar": False,
        "logger": None,
        "on_step": None,
        "on_epoch": None,
        "reduce_fx": "mean",
        "add_dataloader_idx": True,
        "sync_dist": False,
        "rank_zero_only": False,
        "enable_graph": enable_graph,
    }
    assert options.keys() <= call.keys()
    store.log(name, value, tuple({**call, **options}.values()), batch_size)


@pytest.fixture
def store() -> MetricStore:
    """A store in a training batch of four samples."""
    store = MetricStore()
    store.enter(LogScope.TRAIN_BATCH)
    store.batch = torch.zeros(4, 2)
    return store


# --- what cannot be logged ---


@pytest.mark.parametrize(
    "value",
    ["0.5", None, [1.0], (1.0,), {"a": 1.0}, {1.0}, 1j, object(), b"1", numpy.ones(2), print],
)
def test_what_is_no_number_is_refused(store: MetricStore, value: object) -> None:
    """Anything but a number, a tensor or a metric object is refused, with its type and log_dict."""
    with pytest.raises(MetricError) as caught:
        log(store, "loss", value)
    for words in ("log('loss')", repr(value)[:20], f"of type {type(value).__name__}", "log_dict"):
        assert words in str(caught.value)


@pytest.mark.parametrize("shape", [(2,), (0,), (1, 2), (3, 1, 1)])
def test_a_tensor_with_other_than_one_element_is_refused(store: MetricStore, shape) -> None:
    """A tensor of several elements is refused with its shape and what to do."""
    with pytest.raises(MetricError) as caught:
        log(store, "loss", torch.zeros(shape))
    assert f"shape {shape}" in str(caught.value)
    assert ".mean()" in str(caught.value)


def test_a_complex_tensor_is_refused(store: MetricStore) -> None:
    """A complex tensor is refused and not cut to its real part."""
    with pytest.raises(MetricError, match=r"complex tensor: it must be a real number.*\.real"):
        log(store, "loss", torch.tensor(1 + 2j))


def test_a_name_that_is_no_string_is_refused(store: MetricStore) -> None:
    """A metric's name is a string."""
    with pytest.raises(MetricError, match=r"log\(5\): the name must be a string"):
        log(store, 5, 1.0)


@pytest.mark.parametrize("scope", [LogScope.CLOSED, LogScope.PREDICTION])
def test_logging_in_the_wrong_place_is_refused(store: MetricStore, scope: LogScope) -> None:
    """Where a value would go nowhere it is refused, with the places that it may be logged from."""
    store.enter(scope)
    with pytest.raises(MetricError) as caught:
        log(store, "loss", 1.0)
    assert scope.value in str(caught.value)
    assert "training, validation or test step" in str(caught.value)


@pytest.mark.parametrize("scope", [LogScope.TRAIN_BATCH, LogScope.EVALUATION])
def test_logging_for_nobody_is_refused(store: MetricStore, scope: LogScope) -> None:
    """With neither on_step nor on_epoch a value would go nowhere."""
    store.enter(scope)
    with pytest.raises(MetricError, match=r"on_step=False and on_epoch=False.*go nowhere"):
        log(store, "loss", 1.0, on_step=False, on_epoch=False)


def test_on_step_alone_switched_off_in_a_training_batch_is_refused(store: MetricStore) -> None:
    """on_step=False alone leaves a training value without a place, as on_epoch is off there."""
    with pytest.raises(MetricError, match=r"on_epoch is False unless said"):
        log(store, "loss", 1.0, on_step=False)


def test_a_step_value_at_an_epochs_end_is_refused(store: MetricStore) -> None:
    """There is no step in the start and end hooks of a training epoch."""
    store.enter(LogScope.TRAIN_EPOCH)
    with pytest.raises(MetricError, match=r"on_step=True\).*Leave on_step out"):
        log(store, "loss", 1.0, on_step=True)


@pytest.mark.parametrize(
    ("option", "other"),
    [
        ("prog_bar", True),
        ("logger", False),
        ("on_step", True),
        ("on_epoch", True),
        ("reduce_fx", "sum"),
        ("add_dataloader_idx", False),
    ],
)
def test_other_arguments_for_a_name_are_refused(store: MetricStore, option, other) -> None:
    """A name keeps the arguments of its first call; the message says which one changed and how."""
    log(store, "loss", 1.0)
    with pytest.raises(MetricError) as caught:
        log(store, "loss", 1.0, **{option: other})
    assert "log('loss')" in str(caught.value)
    assert f"{option} was " in str(caught.value)
    assert f" and is {other!r}" in str(caught.value)
    assert str(caught.value).count(" was ") == 2  # "was called", and one argument


def test_a_lambda_made_anew_in_each_step_is_the_same(store: MetricStore) -> None:
    """A lambda in a step is another object each time, which is no reason to refuse it."""
    for value in (1.0, 5.0, 2.0):
        log(store, "loss", value, on_epoch=True, reduce_fx=lambda values: values.median())
    assert store.reduce_and_reset(LogScope.TRAIN_BATCH)[0]["loss_epoch"].item() == 2.0
    with pytest.raises(MetricError, match="reduce_fx was"):
        log(store, "loss", 1.0, on_epoch=True, reduce_fx=lambda values: values[0])


# --- what can ---


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, 3.0),
        (0.5, 0.5),
        (True, 1.0),
        (False, 0.0),
        (numpy.float32(0.25), 0.25),
        (numpy.float64(0.25), 0.25),
        (numpy.int64(7), 7.0),
        (Decimal("0.5"), 0.5),
        (Fraction(1, 4), 0.25),
        (torch.tensor(2), 2.0),
        (torch.tensor(True), 1.0),
        (torch.tensor([0.5]), 0.5),
        (torch.tensor([[[0.5]]]), 0.5),
        (torch.tensor(0.5, dtype=torch.float16), 0.5),
        (torch.tensor(0.5, dtype=torch.float64), 0.5),
    ],
)
def test_numbers_and_single_elements_are_taken(store: MetricStore, value, expected) -> None:
    """Numbers of all kinds and tensors with one element of any shape become 0-dim tensors."""
    log(store, "loss", value, on_epoch=True)
    kept = store.callback_metrics["loss"]
    assert kept.shape == ()
    assert kept.item() == expected
    assert store.reduce_and_reset(LogScope.TRAIN_BATCH)[0]["loss_epoch"].item() == expected


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_taken(store: MetricStore, value: float) -> None:
    """NaN and infinity are logged as they are."""
    log(store, "loss", value, prog_bar=True)
    for found in (floats(store.callback_metrics), store.progress_bar_metrics):
        assert str(found["loss"]) == str(value)


def test_values_are_detached_unless_asked(store: MetricStore) -> None:
    """A logged loss holds no graph, so no memory; enable_graph=True keeps it."""
    weight = torch.ones((), requires_grad=True)
    log(store, "loss", weight * 2)
    log(store, "attached", weight * 2, enable_graph=True)
    assert not store.callback_metrics["loss"].requires_grad
    assert store.callback_metrics["attached"].grad_fn is not None


@pytest.mark.parametrize("enable_graph", [False, True])
@pytest.mark.parametrize(
    "made",
    [
        lambda: torch.ones(()),
        lambda: torch.nn.Parameter(torch.ones(())),
        lambda: torch.nn.Parameter(torch.ones(1)),
        lambda: torch.nn.Parameter(torch.ones(1, 1)),
        lambda: torch.nn.Parameter(torch.ones(3))[1],
        lambda: torch.nn.Parameter(torch.ones(1)).view(()),
        lambda: torch.nn.Parameter(torch.ones(())) * 1,
    ],
    ids=["tensor", "parameter", "of one", "of one by one", "element", "view", "result"],
)
def test_what_changes_in_place_later_is_kept_as_it_was(store, made, enable_graph) -> None:
    """A parameter, its views, a buffer, and a loss that is added to later: all are copied."""
    value = made()
    log(store, "x", value, on_epoch=True, prog_bar=True, enable_graph=enable_graph)
    with torch.no_grad():
        value += 5
        if value._base is not None:
            value._base.add_(5)
    assert store.callback_metrics["x"].item() == 1.0
    assert store.progress_bar_metrics == {"x_step": 1.0}
    assert store.step_metrics()[0]["x_step"].item() == 1.0
    assert store.reduce_and_reset(LogScope.TRAIN_BATCH)[0]["x_epoch"].item() == 1.0


# --- defaults of each place, and who is given what ---


def test_a_training_batch_logs_by_step(store: MetricStore) -> None:
    """In a training batch a value is handed on at once, and not reduced."""
    log(store, "loss", 1.0)
    log(store, "loss", 2.0)
    assert floats(store.step_metrics()[0]) == {"loss": 2.0}
    assert store.step_metrics()[0] == {}
    assert store.reduce_and_reset(LogScope.TRAIN_BATCH)[0] == {}
    assert floats(store.callback_metrics) == {"loss": 2.0}


def test_a_training_epoch_logs_by_epoch(store: MetricStore) -> None:
    """In an epoch's hooks a value is there at once, and the loggers get it at the epoch's end."""
    store.enter(LogScope.TRAIN_EPOCH)
    log(store, "acc", 1.0)
    assert floats(store.callback_metrics) == {"acc": 1.0}
    assert store.step_metrics()[0] == {}
    assert floats(store.reduce_and_reset(LogScope.TRAIN_EPOCH)[0]) == {"acc": 1.0}


def test_evaluation_logs_by_epoch(store: MetricStore) -> None:
    """In evaluation a value is reduced; callbacks find nothing of single batches."""
    store.enter(LogScope.EVALUATION)
    log(store, "acc", 1.0, batch_size=1)
    log(store, "acc", 2.0, batch_size=3)
    assert store.step_metrics()[0] == {}
    assert store.callback_metrics == {}
    assert floats(store.reduce_and_reset(LogScope.EVALUATION)[0]) == {"acc": 1.75}
    assert floats(store.callback_metrics) == {"acc": 1.75}


def test_both_in_training_fork_the_name(store: MetricStore) -> None:
    """With on_step and on_epoch, callbacks find three names, loggers get one each."""
    log(store, "loss", 1.0, on_epoch=True, prog_bar=True)
    log(store, "loss", 4.0, on_epoch=True, prog_bar=True)
    assert floats(store.callback_metrics) == {"loss": 4.0, "loss_step": 4.0}
    assert floats(store.step_metrics()[0]) == {"loss_step": 4.0}
    assert store.progress_bar_metrics == {"loss_step": 4.0}
    assert floats(store.reduce_and_reset(LogScope.TRAIN_BATCH)[0]) == {"loss_epoch": 2.5}
    assert floats(store.callback_metrics) == {"loss": 2.5, "loss_step": 4.0, "loss_epoch": 2.5}
    assert store.progress_bar_metrics == {"loss_step": 4.0, "loss_epoch": 2.5}


def test_both_in_evaluation_show_no_step_to_callbacks(store: MetricStore) -> None:
    """Evaluation's single values go to the loggers alone."""
    store.enter(LogScope.EVALUATION)
    log(store, "loss", 3.0, on_step=True)
    assert floats(store.step_metrics()[0]) == {"loss_step": 3.0}
    assert store.callback_metrics == {}
    assert floats(store.reduce_and_reset(LogScope.EVALUATION)[0]) == {"loss_epoch": 3.0}
    assert floats(store.callback_metrics) == {"loss": 3.0, "loss_epoch": 3.0}


def test_logger_false_keeps_a_value_from_the_loggers(store: MetricStore) -> None:
    """Callbacks and the bar find a value that the loggers are not given."""
    log(store, "loss", 1.0, on_epoch=True, prog_bar=True, logger=False)
    assert store.step_metrics()[0] == {}
    assert store.reduce_and_reset(LogScope.TRAIN_BATCH)[0] == {}
    assert floats(store.callback_metrics)["loss_epoch"] == 1.0
    assert set(store.progress_bar_metrics) == {"loss_step", "loss_epoch"}


def test_only_prog_bar_reaches_the_bar(store: MetricStore) -> None:
    """The bar shows what asked for it."""
    log(store, "shown", 1.0, prog_bar=True)
    log(store, "hidden", 2.0)
    assert store.progress_bar_metrics == {"shown": 1.0}


def test_loaders_are_told_apart(store: MetricStore) -> None:
    """With several loaders each has its own values, under its number or a name of its own."""
    for index in range(2):
        store.enter(LogScope.EVALUATION, index, suffix=f"/dataloader_idx_{index}")
        log(store, "acc", float(index), on_step=True)
        log(store, f"of_{index}", float(index), add_dataloader_idx=False)
    values = store.epoch_values(LogScope.EVALUATION, 1)
    assert floats(values) == {"acc_epoch/dataloader_idx_1": 1.0, "of_1": 1.0}
    reduced = floats(store.reduce_and_reset(LogScope.EVALUATION)[0])
    assert reduced == {
        "acc_epoch/dataloader_idx_0": 0.0,
        "acc_epoch/dataloader_idx_1": 1.0,
        "of_0": 0.0,
        "of_1": 1.0,
    }


def test_a_name_without_a_loaders_number_is_of_one_loader(store: MetricStore) -> None:
    """A second loader's value would hide the first one's; it is refused, as in Lightning."""
    for _ in range(2):  # epochs
        store.enter(LogScope.EVALUATION, 0, suffix="/dataloader_idx_0")
        log(store, "shared", 1.0, add_dataloader_idx=False)
        log(store, "shared", 2.0, add_dataloader_idx=False)
        store.reduce_and_reset(LogScope.EVALUATION)
    store.enter(LogScope.EVALUATION, 1, suffix="/dataloader_idx_1")
    with pytest.raises(MetricError, match=r"log\('shared', add_dataloader_idx=False\).*several"):
        log(store, "shared", 3.0, add_dataloader_idx=False)
    log(store, "shared", 3.0)


# --- weights ---


def in_batches(store: MetricStore, *batches, batch_size=None) -> None:
    """Log the number of each batch in a scope that was entered."""
    for number, batch in enumerate(batches):
        store.batch = batch
        log(store, "number", float(number), batch_size=batch_size, on_epoch=True)


def test_a_weight_that_may_be_wrong_is_warned_of_once(store: MetricStore) -> None:
    """The tensors of a batch disagree about its size, which changes from batch to batch."""
    batches = [{"mask": torch.zeros(7, 7), "x": torch.zeros(size, 4)} for size in (8, 2, 3)]
    store.enter(LogScope.EVALUATION)
    message = r"disagree \(7, 2\).*first tensor \(7\)"
    with pytest.warns(TrainerHooksWarning, match=message) as caught:
        in_batches(store, *batches)
    assert len(caught) == 1
    store.enter(LogScope.EVALUATION)
    in_batches(store, *batches)


def test_an_epoch_that_goes_on_has_its_first_batch_behind_it(store: MetricStore) -> None:
    """A last, smaller batch is not compared with nothing: its tensors may disagree by chance."""
    store.enter(LogScope.TRAIN_BATCH)
    in_batches(store, [torch.zeros(4), torch.zeros(4)])
    resumed = MetricStore()
    resumed.load_state_dict(store.state_dict(dict), {}, torch.device("cpu"))
    resumed.enter(LogScope.TRAIN_BATCH)
    in_batches(resumed, [torch.zeros(4), torch.zeros(1)], [torch.zeros(4), torch.zeros(4)])


@pytest.mark.parametrize(
    ("batches", "batch_size"),
    [
        ([{"x": torch.zeros(8, 4), "y": torch.zeros(8)}, {"x": torch.zeros(2, 4)}], None),
        ([{"mask": torch.zeros(7), "x": torch.zeros(8)}] * 3, None),
        ([{"mask": torch.zeros(7), "x": torch.zeros(size)} for size in (8, 2)], 8),
        ([{"scale": torch.tensor(2.0), "x": torch.zeros(size)} for size in (8, 2)], None),
        ([3, "text", None], None),
    ],
    ids=["all agree", "the same in each batch", "batch_size is given", "a number", "no tensor"],
)
def test_a_weight_that_is_right_is_not_warned_of(store: MetricStore, batches, batch_size) -> None:
    """Where it makes no difference, nothing is said."""
    store.enter(LogScope.EVALUATION)
    in_batches(store, *batches, batch_size=batch_size)


@pytest.mark.filterwarnings("ignore:the first dimensions of the tensors in a batch disagree")
@pytest.mark.parametrize(
    ("batch", "size"),
    [
        (torch.zeros(7), 7),
        ([torch.zeros(5, 2), torch.zeros(3)], 5),
        ({"label": "x", "image": torch.zeros(6, 1)}, 6),
        ((torch.tensor(1.0), torch.zeros(3)), 3),
        ("text", 1),
        (None, 1),
        (torch.tensor(1.0), 1),
    ],
)
def test_the_batch_size_is_found_in_the_batch(store: MetricStore, batch, size) -> None:
    """A mean is weighted by the first dimension of the first tensor that has one, else by 1."""
    store.batch = batch
    log(store, "loss", 1.0, on_epoch=True)
    store.batch = torch.zeros(1)
    log(store, "loss", 0.0, on_epoch=True)
    expected = size / (size + 1)
    assert store.reduce_and_reset(LogScope.TRAIN_BATCH)[0]["loss_epoch"].item() == pytest.approx(
        expected
    )


def test_a_batch_size_that_is_given_counts(store: MetricStore) -> None:
    """batch_size overrides what the batch looks like."""
    log(store, "loss", 1.0, on_epoch=True, batch_size=1)
    log(store, "loss", 5.0, on_epoch=True, batch_size=3)
    assert store.reduce_and_reset(LogScope.TRAIN_BATCH)[0]["loss_epoch"].item() == 4.0


def test_values_of_epoch_hooks_weigh_the_same(store: MetricStore) -> None:
    """Outside a batch there is no batch size: a batch that went by before does not count."""
    store.enter(LogScope.TRAIN_EPOCH)
    log(store, "x", 1.0)
    store.enter(LogScope.TRAIN_BATCH)
    store.batch = torch.zeros(100, 2)
    log(store, "other", 1.0, on_epoch=True)
    store.enter(LogScope.TRAIN_EPOCH)
    log(store, "x", 3.0)
    assert store.reduce_and_reset(LogScope.TRAIN_EPOCH)[0]["x"].item() == 2.0


# --- epochs ---


def test_an_epoch_begins_anew(store: MetricStore) -> None:
    """What was logged in the last epoch is not in the next one's reduction."""
    log(store, "loss", 1.0, on_epoch=True)
    store.reduce_and_reset(LogScope.TRAIN_BATCH)[0]
    log(store, "loss", 3.0, on_epoch=True)
    assert store.reduce_and_reset(LogScope.TRAIN_BATCH)[0]["loss_epoch"].item() == 3.0


def test_a_metric_object_under_several_names_is_reduced_before_it_begins_anew(store) -> None:
    """One object that two evaluation loaders log has the same value under both names."""
    mean = pytest.importorskip("torchmetrics").MeanMetric()
    for loader, suffix in enumerate("ab"):
        store.enter(LogScope.EVALUATION, loader, suffix="/" + suffix)
        mean.update(2.0 + loader)
        log(store, "error", mean)
    shared, _ = store.reduce_and_reset(LogScope.EVALUATION)
    assert [float(value) for value in shared.values()] == [2.5, 2.5]
    assert len(shared) == 2
    assert not mean.update_called


def test_a_name_that_is_not_logged_in_an_epoch_keeps_its_value(store: MetricStore) -> None:
    """Loggers get nothing for such an epoch; callbacks still find the last value."""
    log(store, "loss", 1.0, on_epoch=True)
    store.reduce_and_reset(LogScope.TRAIN_BATCH)[0]
    assert store.reduce_and_reset(LogScope.TRAIN_BATCH)[0] == {}
    assert store.callback_metrics["loss_epoch"].item() == 1.0


def test_refresh_shows_the_epoch_so_far(store: MetricStore) -> None:
    """Callbacks find present reductions in the middle, and the epoch goes on."""
    log(store, "loss", 1.0, on_epoch=True)
    store.publish_reductions(LogScope.TRAIN_BATCH)
    assert store.callback_metrics["loss_epoch"].item() == 1.0
    log(store, "loss", 3.0, on_epoch=True)
    assert store.reduce_and_reset(LogScope.TRAIN_BATCH)[0]["loss_epoch"].item() == 2.0


def test_dropping_forgets_values_and_arguments(store: MetricStore) -> None:
    """After a drop nothing of that place is left, so a name may be logged otherwise."""
    store.enter(LogScope.EVALUATION)
    log(store, "acc", 1.0, prog_bar=True)
    store.drop(LogScope.EVALUATION)
    assert store.reduce_and_reset(LogScope.EVALUATION)[0] == {}
    store.enter(LogScope.EVALUATION)
    log(store, "acc", 0.0, prog_bar=False)
    assert floats(store.reduce_and_reset(LogScope.EVALUATION)[0]) == {"acc": 0.0}


def test_what_is_visible_is_put_back_after_an_isolated_evaluation(store: MetricStore) -> None:
    """What callbacks and the bar find is the same after an evaluation that leaves no trace."""
    log(store, "a", 1.0, prog_bar=True)
    before = dict(store.callback_metrics), store.progress_bar_metrics
    with store.isolated():
        log(store, "b", 2.0, prog_bar=True)
        store.callback_metrics["c"] = torch.tensor(3.0)
    assert (dict(store.callback_metrics), store.progress_bar_metrics) == before


# --- state ---


def test_the_state_is_plain_and_goes_on(store: MetricStore) -> None:
    """The state holds plain data, and a store that takes it ends the epoch in the same values."""
    from trainer_hooks.checkpoint.encoding import require_plain

    def median(values):
        return values.median()

    def go_on(target: MetricStore) -> dict:
        target.enter(LogScope.TRAIN_BATCH)
        for value in (3.0, 9.0):
            log(target, "loss", value, on_epoch=True, prog_bar=True, batch_size=2)
            log(target, "middle", value, on_step=False, on_epoch=True, reduce_fx=median)
        return floats(target.reduce_and_reset(LogScope.TRAIN_BATCH, LogScope.TRAIN_EPOCH)[0])

    log(store, "loss", 1.0, on_epoch=True, prog_bar=True, batch_size=2)
    log(store, "middle", 1.0, on_step=False, on_epoch=True, reduce_fx=median)
    store.enter(LogScope.TRAIN_EPOCH)
    log(store, "note", 7.0)
    store.callback_metrics["mine"] = 0.5  # type: ignore[assignment] - users do
    state = store.state_dict(dict)
    require_plain(state, "the store")
    other = MetricStore()
    other.load_state_dict(state, {}, torch.device("cpu"))
    assert floats(other.callback_metrics)["mine"] == 0.5
    assert other.progress_bar_metrics == {"loss_step": 1.0}
    expected = {"loss_epoch": 13 / 3, "middle": 3.0, "note": 7.0}
    assert go_on(store) == go_on(other) == pytest.approx(expected)


def test_floats_keep_order_and_values() -> None:
    """Metrics become Python floats in their order, whatever their type."""
    metrics = {"b": torch.tensor(1), "a": torch.tensor(True), "c": torch.tensor(0.1)}
    found = floats(metrics)
    assert list(found) == ["b", "a", "c"]
    assert [type(value) for value in found.values()] == [float] * 3
    assert found["c"] == torch.tensor(0.1).item()
    assert floats({}) == {}
