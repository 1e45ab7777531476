"""Links between arguments of a config: `{target: source}`."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import jsonargparse
import yaml  # type: ignore[import-untyped]

from trainer_hooks._annotations import signature_of
from trainer_hooks.cli.run.arguments import import_class
from trainer_hooks.errors import OptionError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jsonargparse import Namespace

    from trainer_hooks.cli.run.config_origins import ConfigOrigins
    from trainer_hooks.cli.run.parser import TrainerParser
    from trainer_hooks.trainer.trainer import Trainer


def find_trainer_object(target: str, options: Namespace, option: str, name: str) -> Namespace:
    """Return the config of an object in an option of the Trainer, by its class name or index.

    Raises:
        OptionError: no object matches, or several have that class.
    """
    items = _items(options, option)
    names = [str(item.get("class_path")).rpartition(".")[2] for item in items]
    matching = [i for i, candidate in enumerate(names) if name in (candidate, str(i))]
    if len(matching) == 1:
        return items[matching[0]]
    if matching:
        raise OptionError(
            f"links: {target}: {option} has {len(matching)} of {name}. Name one by its place, from "
            f"0: trainer.{option}.{matching[0]}."
        )
    raise OptionError(
        f"links: {target}: {option} has no {name!r}.{did_you_mean(name, names)} "
        f"Known: {', '.join(names) or 'none is given'}."
    )


def check_required(options: Namespace, targets: Sequence[str]) -> None:
    """Check that required arguments are missing only where a link supplies them.

    For a linked argument the parser does not check this: it then requires the argument nowhere.

    Args:
        options: the options of the Trainer.
        targets: linked arguments, such as `trainer.callbacks.EarlyStopping.monitor`.

    Raises:
        OptionError: an object lacks a required argument.
    """
    parts = [target.split(".")[1:] for target in targets]
    linked = [(find_trainer_object("", options, option, at), name) for option, at, name in parts]
    for option, _, name in parts:
        for index, item in enumerate(_items(options, option)):
            class_path, init_args = item["class_path"], item.get("init_args") or {}
            parameter = signature_of(import_class(class_path)).parameters.get(name)
            is_required = parameter is not None and parameter.default is parameter.empty
            # by identity: two callbacks of one class are equal where their options are
            is_linked = any(owner is item and of == name for owner, of in linked)
            if is_required and init_args.get(name) is None and not is_linked:
                raise OptionError(
                    f"trainer.{option}: {class_path} needs {name}. Give it in init_args, or link "
                    f"to trainer.{option}.{index}.{name}."
                )


def _items(options: Namespace, option: str) -> list[Namespace]:
    value = options.get(option)
    return [
        item for item in (value if isinstance(value, list) else [value]) if hasattr(item, "get")
    ]


class ArgumentLinks:
    """Links of a config: each gives an argument the value of another argument, or of an attribute.

    A source that is an argument gives its parsed value. Any other source is an attribute of the
    data module, the module or another object that is made from the config. If a class is chosen by
    its class path, `data.init_args.name` is its argument, and `data.name` the attribute.

    A target is an argument: `model.classes`, `optimizer.lr`, `trainer.max_steps`. The argument of
    an object in an option of the Trainer is named by the object's class, or by its index if there
    are several: `trainer.callbacks.EarlyStopping.patience`, `trainer.callbacks.0.patience`.

    Args:
        parser: the command's parser.
        sources: the source of each target.

    Raises:
        OptionError: a link is malformed.
    """

    def __init__(self, parser: TrainerParser, sources: Mapping[Any, Any]) -> None:
        self._parser = parser
        self._classes: dict[str, Any] = {}
        """The class that takes each target, where it is chosen in the config."""
        self.sources: dict[str, str] = {}
        for target, source in sources.items():
            if not all(isinstance(key, str) and key for key in (target, source)):
                raise OptionError(
                    f"links: {target}: {source!r} is no key. Write a target and a source, as "
                    "model.num_classes: data.num_classes."
                )
            self.sources[target] = source

    def add(self) -> None:
        """Add all links but those into the Trainer to the parser, which applies them.

        Raises:
            OptionError: arguments cannot be linked.
        """
        for target, source in self.sources.items():
            self._check_names(target, source)
            if not _is_of_trainer(target):
                self._add(target, source)
            elif target.count(".") == 3:
                group, option, _, name = target.split(".")
                self._parser.make_optional(f"{group}.{option}", name)

    def check(self, config: Namespace) -> None:
        """Check that the chosen classes take the arguments that are linked to them.

        The parser silently skips a link into a class that does not take the argument.

        Args:
            config: the parsed config.

        Raises:
            OptionError: a class does not take the argument.
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
            class_, name = self._target_argument(target, config)
            if class_ is None:
                continue
            self._classes[target] = class_
            parameters = signature_of(class_).parameters
            if name not in parameters and not any(
                parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()
            ):
                raise OptionError(
                    f"links: {target}: {class_.__module__}.{class_.__qualname__} takes no {name!r}."
                    f"{did_you_mean(name, parameters)} Known: {', '.join(parameters)}."
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
        """Make the objects; those in the options of the Trainer last, if links lead into them.

        Args:
            parser: the parser of the whole line.
            config: the parsed config, below the command's name if there is one.
            subcommand: the command.
            trainer_class: the class of the Trainer.
        """
        # `instantiate` of a parser is jsonargparse's. It makes the data module, the module, and the
        # callbacks and loggers among the Trainer's options, which stay a Namespace themselves
        # (`TrainerParser.add_trainer_args`)
        objects: Namespace
        if not any(map(_is_of_trainer, self.sources)):
            objects = parser.instantiate(config)
            return objects
        # a source may be an attribute of the module, so the Trainer's options wait for it
        config_without_trainer = config.clone()
        trainer_key = "trainer" if subcommand is None else f"{subcommand}.trainer"
        options = config_without_trainer.pop(trainer_key)
        objects = parser.instantiate(config_without_trainer)
        command_config, command_objects = (
            values if subcommand is None else values[subcommand] for values in (config, objects)
        )
        linked_options = self._options(options, command_config, command_objects)
        trainer_parser = type(self._parser)()  # without the links, whose sources it would look for
        trainer_parser.add_trainer_args(trainer_class)
        command_objects["trainer"] = trainer_parser.instantiate(
            type(linked_options)(trainer=linked_options)
        )["trainer"]
        return objects

    def _options(self, options: Namespace, config: Namespace, objects: Namespace) -> Namespace:
        """Return the options of the Trainer with the linked values filled in.

        Args:
            options: the options in the config; not changed.
            config: the parsed config.
            objects: the objects that were made from it.

        Raises:
            OptionError: a source has no such attribute, or its value has the wrong type.
        """
        options = options.clone()
        for target, source in self.sources.items():
            if not _is_of_trainer(target):
                continue
            group, _, name = source.partition(".")
            if self._is_argument(source):
                value = config[source]
            else:
                value = self._value(target, source, objects[group], name)
            parts = target.split(".")[1:]
            if len(parts) == 1:
                options[parts[0]] = value
            else:
                item = find_trainer_object(target, options, parts[0], parts[1])
                item[f"init_args.{parts[2]}"] = value
        return options

    def _check_names(self, target: str, source: str) -> None:
        """Check that both groups exist, and that the source is made before the target."""
        keys = self._parser.argument_keys
        roots = {key.partition(".")[0] for key in keys} - {"help", "config", "print_config"}
        for role, key in (("", target), (f"{source}: ", source)):
            group = key.partition(".")[0]
            if group not in roots:
                raise OptionError(
                    f"links: {target}: {role}there is no {group!r}.{did_you_mean(group, roots)} "
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
        keys = self._parser.argument_keys
        group, _, name = target.partition(".")
        full = target
        if self._parser.is_open(group) and not name.startswith("init_args."):
            full = f"{group}.init_args.{name}"  # it is given by its class path
        elif not self._parser.is_open(group) and target not in keys:
            names = {k.removeprefix(f"{group}.") for k in keys if k.startswith(f"{group}.")}
            raise OptionError(
                f"links: {target}: there is no {name!r} in {group}.{did_you_mean(name, names)}"
            )
        # a method of its own for each link: in a loop, each `read` would see the last source
        owner, _, attribute = source.partition(".")

        def read(owner_object: Any) -> Any:
            return self._value(target, source, owner_object, attribute)

        read.__name__ = attribute or source  # jsonargparse prints it in the help of the target
        link = self._parser.link_arguments
        try:
            if self._is_argument(source):
                link(source, full, apply_on="parse")
            else:
                # the whole object, not its attribute: `read` explains a missing one
                link(owner, full, read, apply_on="instantiate")
        except ValueError as error:
            raise OptionError(
                f"links: {target}: {source}: {' '.join(str(error).split()).rstrip('.')}. Write a "
                "target and a source, as model.num_classes: data.num_classes."
            ) from error

    def _value(self, target: str, source: str, owner: Any, attribute: str) -> Any:
        """Return the value of a source's attribute."""
        value = owner
        # without an attribute the object itself is the value
        for name in filter(None, attribute.split(".")):
            if not hasattr(value, name):
                names = [each for each in dir(value) if not each.startswith("_")]
                raise OptionError(
                    f"links: {target}: {source}: {type(value).__qualname__} has no attribute "
                    f"{name!r}.{did_you_mean(name, names)} Set it in the constructor."
                )
            value = getattr(value, name)
        self._check_type(target, source, value)
        return value

    def _check_type(self, target: str, source: str, value: Any) -> None:
        class_, argument = self._classes.get(target), target.rpartition(".")[2]
        if class_ is not None and not _fits(value, class_, argument):
            raise OptionError(
                f"links: {target}: {source} is {value!r}, which is no value for {argument!r} of "
                f"{class_.__qualname__}."
            )

    def _target_argument(self, target: str, config: Namespace) -> tuple[Any, str]:
        """Return the class that takes a linked argument, None if the parser knows, and its name."""
        group, *parts = target.split(".")
        if _is_of_trainer(target) and len(parts) == 1:
            if target not in self._parser.argument_keys:
                names = {k.split(".")[1] for k in self._parser.argument_keys if "trainer." in k}
                raise OptionError(
                    f"links: {target}: there is no {parts[0]!r} in trainer."
                    f"{did_you_mean(parts[0], names)}"
                )
            return None, parts[0]
        if _is_of_trainer(target):
            item = find_trainer_object(target, config["trainer"], parts[0], parts[1])
            return import_class(item["class_path"]), parts[2]
        value = config.get(group)
        if value is None and parts:
            raise OptionError(f"links: {target}: no {group} is given.")
        class_path = value.get("class_path") if hasattr(value, "get") else None
        name = parts[1] if parts[:1] == ["init_args"] and len(parts) > 1 else (parts or [""])[0]
        return (import_class(str(class_path)) if class_path else None), name

    def _is_argument(self, source: str) -> bool:
        return source in self._parser.argument_keys or ".init_args." in source


def _is_of_trainer(target: str) -> bool:
    return target.startswith("trainer.")


def _fits(value: Any, class_: Any, argument: str) -> bool:
    """Return whether a value fits an argument's type; True if the type is unknown."""
    try:
        hint = get_type_hints(class_.__init__).get(argument, Any)
        # a parser of one argument: only it knows what it takes for a hint, as `int` for a float
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


_OPTION = "--links"


def find_links(origins: ConfigOrigins, explicit: Mapping[str, Any]) -> dict[Any, Any]:
    """Return the source of each target; later origins override earlier ones.

    jsonargparse would let one origin's `links` replace those of another as a whole.

    Args:
        origins: the environment, the config files and the command line.
        explicit: the values of a config object, which replaces the command line.

    Raises:
        OptionError: a value is not a mapping of links.
    """
    # in the order in which the parser overrides: environment, files, command line
    variable = os.environ.get(origins.variable("links"))
    links: dict[Any, Any] = {} if variable is None else _mapping(variable)
    links.update(origins.merged_mapping("links"))
    links.update(explicit.get("links") or {})
    for key, value in _split_arguments(origins.words)[1]:
        links.update(_mapping(value) if key is None else {key: value})
    return links


def merge_links(words: Sequence[str], links: Mapping[str, str]) -> list[str]:
    """Return the arguments with all links merged into a last one, which overrides those before."""
    rest, _ = _split_arguments(words)
    # JSON is YAML on one line, whatever signs a key holds
    return [*rest, f"{_OPTION}={json.dumps(dict(links))}"] if links else rest


def _split_arguments(words: Sequence[str]) -> tuple[list[str], list[tuple[str | None, str]]]:
    """Split the arguments into those without links, and pairs of target and value.

    The target is None if the value holds several links.
    """
    rest: list[str] = []
    links: list[tuple[str | None, str]] = []
    left = list(words)
    while left:
        word = left.pop(0)
        option, equals, value = word.partition("=")
        if option != _OPTION and not option.startswith(f"{_OPTION}."):
            rest.append(word)
            continue
        # a value may stand in the next word; another option there means that it was forgotten
        if not equals and left and not left[0].startswith("--"):
            value = left.pop(0)
        links.append((None if option == _OPTION else option.removeprefix(f"{_OPTION}."), value))
    return rest, links


def _mapping(text: str) -> dict[Any, Any]:
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        value = text
    if not isinstance(value, dict):
        raise OptionError(
            f"links: {value!r} is no mapping. Write targets and sources, as "
            "{model.num_classes: data.num_classes}."
        )
    return value
