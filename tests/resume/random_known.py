"""What random configurations are known to find, and how they keep away from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from random_space import SPACE, Options, fitting

if TYPE_CHECKING:
    from collections.abc import Callable

# What is known to go wrong, by number, and why. It is drawn again once its line is taken out.
KNOWN: dict[int, str] = {
    1: "metric objects and callbacks count twice what a signal breaks off in a validation",
    2: "persistent workers draw once more from the global random numbers for an own sampler",
    4: "16-mixed has no scale yet where the rest of a window has no backward",
    5: "modes and requires_grad that are set at an epoch's start are not saved",
    6: "generators are not found deep in a data set, in the module, or in a callback",
    9: "SWA's replay after the last epoch does not tell the sampler the epoch",
    10: "a save in a hook that is no slot loses or doubles hook calls",
    13: "ModelPruning ranks by the weights of the step before",
    14: "NAdam's mu_product takes the dtype of the parameters",
    16: "trainer.is_last_batch is False between epochs after a resume, and else what it was last",
    17: "a cycle of epochs that the run's end cuts short is closed again after a resume",
    18: "after a resume at an epoch's end a filter of batches or epochs is due once more",
    19: "a checkpoint saved in the slot that serves a request holds the request still",
}


def _hits_1(o: Options) -> bool:
    counted = o["metric_objects"] or o["counts_validation"] or o["average"] == "validated ema"
    return bool(o["cut"] == "signal in validation" and counted)


def _hits_6(o: Options) -> bool:
    in_data = o["augment"] == "own generators" and (o["is_deep"] or o["data"] != "map")
    return bool(in_data or o["module_generator"] or o["callback_generator"])


def _hits_18(o: Options) -> bool:
    return " or " in str(o["evaluators"]) or " or " in str(o["val_check_interval"])


# For each number: whether a configuration comes by it, and the options that are made simplest then.
AROUND: dict[int, tuple[Callable[[Options], bool], tuple[str, ...]]] = {
    1: (_hits_1, ("metric_objects", "counts_validation", "average")),
    2: (lambda o: o["persistent"] and o["order"].startswith("own"), ("persistent",)),
    4: (lambda o: o["precision"] == "16-mixed", ("skips",)),
    5: (lambda o: o["changes_mode"] != "no", ("changes_mode",)),
    6: (_hits_6, ("is_deep", "module_generator", "callback_generator", "augment")),
    9: (lambda o: o["average"] == "swa" and "epoch" in o["order"], ("average",)),
    10: (lambda o: o["cut"] == "hook", ("cut",)),
    13: (lambda o: o["prunes"], ("prunes",)),
    14: (lambda o: o["optimizer"] == "NAdam" and o["precision"] == "64-true", ("optimizer",)),
    # 16 is left out of what is compared
    17: (lambda o: o["ends"] != "2iter", ("iteration_length",)),
    18: (_hits_18, ("evaluators", "val_check_interval")),
    19: (lambda o: o["asks"] and o["second_cut"], ("second_cut",)),
}


def allowed(options: Options) -> Options:
    """Return options that go together, without what is known to go wrong."""
    fit = fitting(options)
    for number in KNOWN.keys() & AROUND.keys():
        is_hit, names = AROUND[number]
        if is_hit(fit):
            fit.update({name: SPACE[name][0] for name in names})
    return fitting(fit)
