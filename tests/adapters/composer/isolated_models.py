"""ComposerModels in our Trainer, and in Composer's own."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

import trainer_hooks
from trainer_hooks.adapters.composer import adapt_module

pytest.importorskip("composer", reason="needs tests/adapters/composer/requirements.txt")

import composer
from composer import callbacks
from composer.loggers import LoggerDestination
from running import Hearing, Program, SaveAt, Theirs, layers, loader, raised, train, weights

pytestmark = [pytest.mark.exhaustive, pytest.mark.filterwarnings("ignore")]

IMPORTS = ("tests/adapters/composer/stand_ins", "composer")


class Model(Theirs):
    """A model with several losses, and with metrics of the training."""

    def loss(self, outputs, batch):
        cross = super().loss(outputs, batch)
        return {"cross": cross, "size": 0.01 * outputs.square().mean()}

    def get_metrics(self, is_train):
        return {"MulticlassAccuracy": self.accuracy}


class Dropping(Model):
    """The same with random numbers of its own."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(*layers(), torch.nn.Dropout(0.2))


class Values(LoggerDestination):
    """Keep the losses and metrics that are logged, in their order."""

    def __init__(self):
        self.values = {}

    def log_metrics(self, metrics, step=None):
        for name, value in metrics.items():
            if name.startswith(("loss/", "metrics/")):
                self.values.setdefault(name, []).append(round(float(value), 5))


def made(model, rate=0.1):
    """Return what Composer's Trainer is given beside a model."""
    optimizer = torch.optim.SGD(model.parameters(), rate, momentum=0.9)
    return optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)


def trained_there(duration, path=None, save=None):
    """Train in Composer's Trainer, and return the model and what was logged."""
    torch.manual_seed(1)
    model, values = Model(), Values()
    optimizer, scheduler = made(model)
    trainer = composer.Trainer(
        model=model, train_dataloader=loader(), eval_dataloader=loader(), max_duration=duration,
        optimizers=optimizer, schedulers=scheduler, loggers=[values], device="cpu", seed=3,
        progress_bar=False, auto_log_hparams=False, load_path=path, callbacks=[],
    )  # fmt: skip
    trainer.fit()
    if save:
        trainer.save_checkpoint(save)
    trainer.close()
    return model, values.values


class Listing(composer.Callback):
    """Keep the names under which the state lists metrics."""

    def __init__(self):
        self.names = set()

    def look(self, state):
        labels = {label: sorted(metrics) for label, metrics in state.eval_metrics.items()}
        shown = (
            sorted(state.train_metrics), sorted(state.train_metric_values), labels,
            sorted(state.eval_metric_values),
        )  # fmt: skip
        self.names.add(str(shown))

    def fit_end(self, state, logger):
        self.look(state)


class WithoutTrainMetrics(Model):
    """Has metrics of evaluations alone."""

    def get_metrics(self, is_train):
        return {} if is_train else super().get_metrics(is_train)


@pytest.mark.parametrize("kind", [Model, WithoutTrainMetrics])
def test_the_state_lists_metrics_as_at_home(kind):
    """Under the model's names, those of the training apart from those of an evaluation."""
    torch.manual_seed(1)
    model, there, here = kind(), Listing(), Listing()
    optimizer, scheduler = made(model)
    trainer = composer.Trainer(
        model=model, train_dataloader=loader(), eval_dataloader=loader(), max_duration="1ep",
        optimizers=optimizer, schedulers=scheduler, device="cpu", progress_bar=False,
        auto_log_hparams=False, callbacks=[there],
    )  # fmt: skip
    trainer.fit()
    trainer.close()
    torch.manual_seed(1)
    model = kind()
    ours = train([here], fits=False, max_epochs=1)
    ours.fit(adapt_module(model, *made(model)), loader(), loader())
    assert here.names == there.names


def trained_here(epochs, path=None, stop=None, save=None, kind=Model):
    """Train the same in ours."""
    torch.manual_seed(1)
    model, values = kind(), Values()
    trainer_hooks.seed_everything(3)
    trainer = train(
        [values, SaveAt(stop)], fits=False, max_epochs=epochs, max_steps=stop or -1,
        log_every_n_steps=1,
    )  # fmt: skip
    trainer.fit(adapt_module(model, *made(model)), loader(), loader(), ckpt_path=path)
    if save:
        trainer.save_checkpoint(save)
    return model, values.values


def per_batch(values, batches):
    """Return what is logged of each batch: at the end of an epoch Composer repeats the metric."""
    found = dict(values)
    name = "metrics/train/MulticlassAccuracy"
    found[name] = [v for i, v in enumerate(found[name]) if i % (batches + 1) != batches]
    return found


def test_it_is_trained_and_measured_as_at_home():
    there, logged_there = trained_there("2ep")
    here, logged_here = trained_here(2)
    assert weights(here) == weights(there)
    assert logged_here == per_batch(logged_there, 4), (logged_here, logged_there)
    assert set(logged_here) == {
        "loss/train/cross", "loss/train/size", "loss/train/total",
        "metrics/train/MulticlassAccuracy", "metrics/eval/MulticlassAccuracy",
    }  # fmt: skip


def test_it_goes_on_as_at_home():
    trained_there("1ep", save="theirs.pt")
    there, logged_there = trained_there("2ep", "theirs.pt")
    trained_here(1, save="stopped.ckpt")
    here, logged_here = trained_here(2, "stopped.ckpt")
    assert weights(here) == weights(there)
    assert logged_here == per_batch(logged_there, 4), (logged_here, logged_there)


def test_it_goes_on_inside_an_epoch_as_if_nothing_had_been():
    whole, logged = trained_here(2, kind=Dropping)
    trained_here(2, stop=6, kind=Dropping)
    again, logged_again = trained_here(2, "stopped.ckpt", kind=Dropping)
    assert weights(again) == weights(whole)
    for name in ("loss/train/total", "metrics/train/MulticlassAccuracy"):
        assert logged_again[name] == logged[name][6:]


def test_names_of_a_checkpoint_are_the_model_s_own():
    model = Model()
    trainer = train([], adapt_module(model, made(model)[0]))
    trainer.save_checkpoint("own.ckpt")
    found = torch.load("own.ckpt", weights_only=True)["state_dict"]
    assert list(found) == list(model.state_dict())
    assert trainer.module.foreign_module is model
    assert type(trainer.module).__qualname__ == "Model"


def test_callbacks_receive_the_model_itself():
    model = Model()
    hearing = Hearing(lambda state, _: state.model, "fit_start")
    logs = Hearing(lambda state, logger: state.model.logger is logger, "fit_start")
    train([hearing, logs], adapt_module(model, made(model)[0]))
    assert hearing.found == [model]
    assert logs.found == [True]
    assert model.logger is None
    plain = [event for event in hearing.events if event.startswith("eval")]
    assert plain == [
        "eval_before_all", "eval_start",
        *["eval_batch_start", "eval_before_forward", "eval_after_forward", "eval_batch_end"] * 4,
        "eval_end", "eval_after_all",
    ]  # fmt: skip


def test_a_metric_is_watched_under_its_name():
    stopper = callbacks.EarlyStopper("MulticlassAccuracy", "eval", patience="1ep")
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    trainer = train([stopper], adapt_module(model, optimizer), max_epochs=9)
    assert trainer.current_epoch < 9


def test_it_is_taken_as_it_is():
    model = Model()
    (found,) = train([], fits=False).validate(model, loader(), verbose=False)
    assert set(found) == {"metrics/eval/MulticlassAccuracy"}
    outputs = train([], fits=False).predict(model, loader())
    assert torch.equal(outputs[0], model.eval()(next(iter(loader()))))


def test_one_that_makes_its_optimizers_needs_nothing_else():
    class Making(Model):
        def configure_optimizers(self):
            return made(self)[0]

    model = Making()
    before = weights(model)
    train([], model)
    assert weights(model) != before


def test_one_without_an_optimizer_is_told_how_to_give_one():
    message = str(raised(lambda: train([], Model())))
    assert "Model is a ComposerModel without an optimizer" in message, message
    assert "adapt_module(model, optimizer)" in message, message


def test_schedulers_of_composer_s_are_refused():
    from composer.optim import ConstantScheduler

    model = Model()
    error = raised(lambda: adapt_module(model, made(model)[0], ConstantScheduler()))
    assert "it is no scheduler of torch's" in str(error), error


def test_it_is_copied_with_its_optimizers():
    model = Model()
    module = adapt_module(model, *made(model))
    for again in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        (optimizer,), (config,) = again.configure_optimizers()
        assert again.foreign_module is not model
        own = next(iter(again.parameters()))
        assert any(own is one for one in optimizer.param_groups[0]["params"])
        assert config["scheduler"].optimizer is optimizer


def test_several_loaders_have_a_metric_each():
    model = Model()
    module = adapt_module(model, made(model)[0])
    found = train([], fits=False).validate(module, [loader(), loader()], verbose=False)
    names = [f"metrics/eval_{index}/MulticlassAccuracy" for index in range(2)]
    assert [list(one) for one in found] == [[name] for name in names], found


def test_a_plain_program_has_the_same_events():
    class Both(Program):
        def train_here(self, duration, ckpt_path=None):
            torch.manual_seed(1)
            model, callback = Theirs(), self.make()
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            train([callback], fits=False, max_epochs=int(duration[:-2])).fit(
                adapt_module(model, optimizer), loader(), loader()
            )
            return None, model, callback, None

    program = Both(lambda: Hearing(lambda state, _: round(float(state.loss), 5), "after_loss"))
    there, _, _ = program.train_there("2ep")
    _, here, hearing, _ = program.train_here("2ep")
    theirs = there.state.callbacks[-1]
    assert hearing.found == theirs.found
    assert hearing.events[: len(theirs.events)] == theirs.events
    assert weights(here) == weights(there.state.model)


def language_model():
    """Return a small language model of Composer's, and batches for it, without a network."""
    from composer.models import HuggingFaceModel
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    words = {word: index for index, word in enumerate(["<e>", "a", "b", "c", "d", "e"])}
    plain = Tokenizer(models.WordLevel(words, unk_token="<e>"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, eos_token="<e>", pad_token="<e>")
    torch.manual_seed(1)
    config = GPT2Config(
        vocab_size=6, n_positions=16, n_embd=8, n_layer=1, n_head=2, bos_token_id=0,
        eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    model = HuggingFaceModel(GPT2LMHeadModel(config), tokenizer, use_logits=True)
    numbers = torch.Generator().manual_seed(0)
    ids = torch.randint(1, 6, (8, 4), generator=numbers)
    return model, [{"input_ids": part, "labels": part} for part in ids.split(2)]


class Tables(LoggerDestination):
    """Keep the tables that are logged."""

    def __init__(self):
        self.rows = []

    def log_table(self, columns, rows, name="Table", step=None):
        self.rows.append([name, columns, rows])


def test_a_hugging_face_model_generates_as_at_home():
    def generating():
        return callbacks.Generate(["a b", "c d e"], "2ba", max_new_tokens=3, do_sample=False)

    there, here = Tables(), Tables()
    model, batches = language_model()
    composer.Trainer(
        model=model, train_dataloader=batches, max_duration="1ep", callbacks=[generating()],
        optimizers=torch.optim.SGD(model.parameters(), 0.5), loggers=there, device="cpu",
        progress_bar=False, auto_log_hparams=False, device_train_microbatch_size=2,
    ).fit()  # fmt: skip
    again, batches = language_model()
    module = adapt_module(again, torch.optim.SGD(again.parameters(), 0.5))
    train([generating()], fits=False, logger=here).fit(module, batches)
    assert here.rows == there.rows, (here.rows, there.rows)
    assert len(here.rows) == 2, here.rows
    for name, value in again.state_dict().items():
        assert torch.allclose(value, model.state_dict()[name], atol=1e-6), name
