"""Links between arguments, as a config writes them."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import jsonargparse

from trainer_hooks.cli.run.given_classes import check_required, imported, named
from trainer_hooks.errors import OptionError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jsonargparse import Namespace

    from trainer_hooks.cli.run.parser import TrainerParser
    from trainer_hooks.trainer import Trainer

__all__ = ["Links"]


class Links:
    """Links of a config: each lets an argument take another's value, or an attribute's.

    A source that is an argument is taken as it was parsed; any other is an attribute of the data
    module, the module or another object that is made from the config. Where a class is given by its
    class path, `data.init_args.name` is its argument, and `data.name` the attribute.

    A target is an argument: `model.classes`, `optimizer.lr`, `trainer.max_steps`. Of an object that
    stands in an option of the Trainer it is named by the object's class, or by its place if there
    are several: `trainer.callbacks.EarlyStopping.patience`, `trainer.callbacks.0.patience`.

    Args:
        parser: whose arguments they are.
        sources: the source of each target.

    Raises:
        OptionError: a link is none.
    """

    def __init__(self, parser: TrainerParser, sources: Mapping[Any, Any]) -> None:
        self._parser = parser
        self._kinds: dict[str, Any] = {}
        self.sources: dict[str, str] = {}
        for target, source in sources.items():
            if not all(isinstance(key, str) and key for key in (target, source)):
                raise OptionError(
                    f"links: {target}: {source!r} is no key. Write a target and a source, as "
                    "model.num_classes: data.num_classes."
                )
            self.sources[target] = source

    def add(self) -> None:
        """Let the parser apply those that are not the Trainer's, as it parses or makes objects.

        Raises:
            OptionError: they cannot be linked.
        """
        for target, source in self.sources.items():
            self._check_names(target, source)
            if not _is_of_trainer(target):
                self._add(target, source)
            elif target.count(".") == 3:
                group, option, _, name = target.split(".")
                self._parser.require_no(f"{group}.{option}", name)

    def check(self, config: Namespace) -> None:
        """Make sure that the classes that were given take what is linked to them.

        Args:
            config: the config, parsed.

        Raises:
            OptionError: one does not; the parser would pass over it.
        """
        for target in config["links"]:
            if target not in self.sources:
                raise OptionError(
                    f"links: {target}: it is no default of the parser. Call its link_arguments."
                )
        config["links"] = dict(self.sources)
        for target, source in self.sources.items():
            if ".init_args." in source and source not in config:
                raise OptionError(f"links: {target}: {source}: there is no such argument.")
            kind, name = self._taker(target, config)
            if kind is None:
                continue
            self._kinds[target] = kind
            taken = inspect.signature(kind).parameters
            if name not in taken and not any(p.kind is p.VAR_KEYWORD for p in taken.values()):
                raise OptionError(
                    f"links: {target}: {kind.__module__}.{kind.__qualname__} takes no {name!r}."
                    f"{nearest(name, taken)} Known: {', '.join(taken)}."
                )
            if self._is_argument(source):
                self._check_type(target, source, config[source])
        linked = [target for target in self.sources if target.count(".") == 3]
        check_required(config["trainer"], linked)

    def instantiate(
        self,
        parser: TrainerParser,
        config: Namespace,
        subcommand: str | None,
        trainer_class: type[Trainer],
    ) -> Namespace:
        """Make the objects; those in the options of the Trainer last, if anything links to them.

        Args:
            parser: that of the whole line.
            config: the config, parsed, below the command's name if there is one.
            subcommand: the command.
            trainer_class: the class of the Trainer.
        """
        made: Namespace
        if not any(map(_is_of_trainer, self.sources)):
            made = parser.instantiate(config)
            return made
        rest = config.clone()
        options = rest.pop("trainer" if subcommand is None else f"{subcommand}.trainer")
        made = parser.instantiate(rest)
        own, below = (c if subcommand is None else c[subcommand] for c in (config, made))
        linked = self._options(options, own, below)
        alone = type(self._parser)()  # without the links, whose sources it would look for
        alone.add_trainer_args(trainer_class)
        below["trainer"] = alone.instantiate(type(linked)(trainer=linked))["trainer"]
        return made

    def _options(self, options: Namespace, config: Namespace, made: Namespace) -> Namespace:
        """Return the options of the Trainer with what is linked to them.

        Args:
            options: those of the config; they stay as they are.
            config: the config.
            made: the objects that were made of it.

        Raises:
            OptionError: a source has no such attribute, or a value is of another type.
        """
        options = options.clone()
        for target, source in self.sources.items():
            if not _is_of_trainer(target):
                continue
            group, _, name = source.partition(".")
            if self._is_argument(source):
                value = config[source]
            else:
                value = self._value(target, source, made[group], name)
            parts = target.split(".")[1:]
            if len(parts) == 1:
                options[parts[0]] = value
            else:
                item = named(target, options, parts[0], parts[1])
                item[f"init_args.{parts[2]}"] = value
        return options

    def _check_names(self, target: str, source: str) -> None:
        """Make sure that the groups are there, and that the order of making can be kept."""
        keys = self._parser.argument_keys
        roots = {key.partition(".")[0] for key in keys} - {"help", "config", "print_config"}
        for role, key in (("", target), (f"{source}: ", source)):
            group = key.partition(".")[0]
            if group not in roots:
                raise OptionError(
                    f"links: {target}: {role}there is no {group!r}.{nearest(group, roots)} "
                    f"Known: {', '.join(sorted(roots))}."
                )
        group, _, name = target.partition(".")
        if not name and (group in keys or not self._is_argument(source)):
            raise OptionError(
                f"links: {target}: it is no argument of an object. Write one, as model.num_classes."
            )
        if source.startswith("trainer.") and not self._is_argument(source):
            raise OptionError(f"links: {target}: {source}: the Trainer is made last.")
        if _is_of_trainer(target) and len(target.split(".")) not in (2, 4):
            raise OptionError(
                f"links: {target}: write an option of the Trainer, as trainer.max_steps, or an "
                "argument in one, as trainer.callbacks.EarlyStopping.patience."
            )

    def _add(self, target: str, source: str) -> None:
        keys, is_argument = self._parser.argument_keys, self._is_argument(source)
        group, _, name = target.partition(".")
        full = target
        if self._parser.is_open(group) and not name.startswith("init_args."):
            full = f"{group}.init_args.{name}"  # it is given by its class path
        elif not self._parser.is_open(group) and target not in keys:
            known = {k.removeprefix(f"{group}.") for k in keys if k.startswith(f"{group}.")}
            raise OptionError(
                f"links: {target}: there is no {name!r} in {group}.{nearest(name, known)}"
            )
        owner, _, attribute = source.partition(".")
        link = self._parser.link_arguments
        try:
            if is_argument:
                link(source, full, apply_on="parse")
            else:
                link(owner, full, self._reader(target, source, attribute), apply_on="instantiate")
        except ValueError as error:
            raise OptionError(
                f"links: {target}: {source}: {' '.join(str(error).split()).rstrip('.')}. Write a "
                "target and a source, as model.num_classes: data.num_classes."
            ) from error

    def _reader(self, target: str, source: str, attribute: str) -> Callable[[Any], Any]:
        def read(owner: Any) -> Any:
            return self._value(target, source, owner, attribute)

        read.__name__ = attribute or source
        return read

    def _value(self, target: str, source: str, owner: Any, attribute: str) -> Any:
        """Return an attribute of what was made."""
        value = owner
        for name in filter(None, attribute.split(".")):
            if not hasattr(value, name):
                known = [each for each in dir(value) if not each.startswith("_")]
                raise OptionError(
                    f"links: {target}: {source}: {type(value).__qualname__} has no attribute "
                    f"{name!r}.{nearest(name, known)} Set it in the constructor."
                )
            value = getattr(value, name)
        self._check_type(target, source, value)
        return value

    def _check_type(self, target: str, source: str, value: Any) -> None:
        kind, argument = self._kinds.get(target), target.rpartition(".")[2]
        if kind is not None and not _fits(value, kind, argument):
            raise OptionError(
                f"links: {target}: {source} is {value!r}, which is no value for {argument!r} of "
                f"{kind.__qualname__}."
            )

    def _taker(self, target: str, config: Namespace) -> tuple[Any, str]:
        """Return the class that takes a value, None where the parser knows, and the name there."""
        group, *parts = target.split(".")
        if _is_of_trainer(target) and len(parts) == 1:
            if target not in self._parser.argument_keys:
                known = {k.split(".")[1] for k in self._parser.argument_keys if "trainer." in k}
                raise OptionError(
                    f"links: {target}: there is no {parts[0]!r} in trainer."
                    f"{nearest(parts[0], known)}"
                )
            return None, parts[0]
        if _is_of_trainer(target):
            item = named(target, config["trainer"], parts[0], parts[1])
            return imported(item["class_path"]), parts[2]
        given = config.get(group)
        if given is None and parts:
            raise OptionError(f"links: {target}: no {group} is given.")
        path = given.get("class_path") if hasattr(given, "get") else None
        first = parts[1] if parts[:1] == ["init_args"] and len(parts) > 1 else (parts or [""])[0]
        return (imported(str(path)) if path else None), first

    def _is_argument(self, source: str) -> bool:
        return source in self._parser.argument_keys or ".init_args." in source


def _is_of_trainer(target: str) -> bool:
    return target.startswith("trainer.")


def _fits(value: Any, kind: Any, argument: str) -> bool:
    """Return whether a value is one for an argument, by its type; True where that is not known."""
    try:
        hint = get_type_hints(kind.__init__).get(argument, Any)
        reader = jsonargparse.ArgumentParser(exit_on_error=False)
        reader.add_argument("--value", type=hint)
    except (NameError, TypeError, ValueError):
        return True  # a name that is there for type checkers alone, or no type for a parser
    if value is None:  # to the parser, an option that is not given
        return hint in (Any, None) or type(None) in get_args(hint)
    try:
        reader.parse_object({"value": value})
    except jsonargparse.ArgumentError:
        return False
    return True
