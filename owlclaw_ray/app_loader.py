"""Importing an application by its path, as `module:app`, and the tools that installed packages add to every application."""

from __future__ import annotations

import builtins
import difflib
import importlib
import importlib.metadata
import re
import sys
import traceback
from pathlib import Path
from types import ModuleType

from owlclaw_ray.app import OwlClaw
from owlclaw_ray.domain.tool import ToolOrigin
from owlclaw_ray.errors import ConfigurationError, Problem
from owlclaw_ray.own_packages import OWN_PACKAGES, keep_own_packages, namesakes

PLUGINS = "owlclaw.tools"
"""The group of entry points that name functions of an OwlClaw, each of which registers tools on it."""
_FIX = "write it as module:name, such as app:app for `app = OwlClaw(…)` in app.py"


def application(import_path: str | None, folder: Path | None = None) -> OwlClaw:
    """Return the application, or one without tools of its own if there is no path, with the tools of installed packages.

    Raises ConfigurationError as load_app does, and with every plug-in that cannot be used.
    """
    app = load_app(import_path, folder) if import_path else OwlClaw("owlclaw")
    add_plugins(app)
    return app


def add_plugins(app: OwlClaw) -> None:
    """Have every entry point of the group `owlclaw.tools` register its tools, once; raises ConfigurationError naming all that fail.

    The application does not vouch for them: they ask as all external tools do.
    """
    problems = []
    for entry in sorted(importlib.metadata.entry_points(group=PLUGINS), key=lambda each: each.name):
        if entry.name in app.plugins:
            continue
        where = f"plug-in {entry.name!r} ({entry.value})"
        app.registry.origin = ToolOrigin.EXTERNAL
        try:
            entry.load()(app)
            app.plugins.add(entry.name)
        except ConfigurationError as error:
            problems += [Problem(f"{where}: {each.where}", each.what, each.fix) for each in error.problems]
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, it is told with its place
            what = f"failed with {type(error).__name__}: {error}"
            problems.append(Problem(where, what, "mend it, or remove its package"))
        finally:
            app.registry.origin = ToolOrigin.APPLICATION
    if problems:
        raise ConfigurationError(problems)


def load_app(import_path: str, folder: Path | None = None) -> OwlClaw:
    """Import and return an application; `folder` goes to the front of the import path.

    Raises ConfigurationError that says which part of the import path is wrong, or file and line of what failed while the
    module was imported. A module of the same name that was imported from another folder before is imported anew.
    """
    where = f"app {import_path!r}"
    module_name, colon, attribute = import_path.strip().partition(":")
    if not colon or not attribute or not all(part.isidentifier() for part in module_name.split(".")):
        raise ConfigurationError([Problem(where, "is no import path", _FIX)])
    top = module_name.partition(".")[0]
    if top in OWN_PACKAGES:
        what = f"{top} is the name of a package of OwlClaw, which is imported in its place"
        raise ConfigurationError([Problem(where, what, f"rename {top}.py or the folder {top}, such as to my_{top}")])
    if folder is not None:
        keep_own_packages()
        _put_first(folder.resolve(), module_name)
    module = _import(module_name, where, folder)
    app = module
    for part in attribute.split("."):
        if not hasattr(app, part):
            raise ConfigurationError(
                [Problem(where, f"module {module_name} has no {attribute!r}", _suggestion(module))]
            )
        app = getattr(app, part)
    if not isinstance(app, OwlClaw):
        what = f"{attribute} is of type {type(app).__name__}, not OwlClaw"
        raise ConfigurationError([Problem(where, what, _suggestion(module))])
    return app


def _put_first(folder: Path, module_name: str) -> None:
    if str(folder) in sys.path:
        sys.path.remove(str(folder))
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    top = module_name.partition(".")[0]
    loaded = getattr(sys.modules.get(top), "__file__", None)
    here = (folder / f"{top}.py").exists() or (folder / top).is_dir()
    if loaded and here and not Path(loaded).resolve().is_relative_to(folder):
        for name in [*sys.modules]:  # a copy, made at once: other threads import meanwhile
            if name == top or name.startswith(f"{top}."):
                sys.modules.pop(name, None)


def _import(module_name: str, where: str, folder: Path | None) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            searched = folder.resolve() if folder is not None else "Python's import path"
            what = f"there is no module {error.name!r} in {searched}"
            raise ConfigurationError([Problem(where, what, _FIX)]) from error
        raise _import_failed(where, error, folder) from error
    except ConfigurationError as error:
        at = _place(error)
        raise ConfigurationError(
            [Problem(f"{at}: {each.where}", each.what, each.fix) for each in error.problems]
        ) from error
    except (Exception, SystemExit) as error:
        raise _import_failed(where, error, folder) from error


def _import_failed(where: str, error: BaseException, folder: Path | None) -> ConfigurationError:
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    what = f"importing it failed at {_place(error)} with {type(error).__name__}: {message}"
    problems = [Problem(where, what, _remedy(error))]
    if isinstance(error, ImportError) and (error.name or "").partition(".")[0] in OWN_PACKAGES:
        problems = [*namesakes(folder or Path()), *problems]
    return ConfigurationError(problems)


def _remedy(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return f"mend the line: {error.text.strip()}" if error.text else "mend the line"
    if "partially initialized module" in str(error):
        return (
            "two modules import each other: put `app = OwlClaw(…)` into a module of its own, which imports neither and which "
            "both import"
        )
    if isinstance(error, ModuleNotFoundError):
        top = (error.name or "").partition(".")[0]
        return f"install the package that has it into the environment of owlclaw: {sys.executable} -m pip install {top}"
    if isinstance(error, ImportError | NameError) and (meant := _meant(error)):
        return f"did you mean {meant}?"
    return (
        "define or import it before that line" if isinstance(error, NameError) else "mend that line, or what it calls"
    )


def _meant(error: ImportError | NameError) -> str:
    """Return the name that was meant, if one that is like it was there."""
    if isinstance(error, NameError):
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        written, known = error.name or "", [*frames[-1].f_globals, *vars(builtins)] if frames else []
    else:
        found = re.match(r"cannot import name '(\w+)'", str(error))
        written, known = found[1] if found else "", dir(sys.modules.get(error.name or ""))
    return next(iter(difflib.get_close_matches(written, known, n=1, cutoff=0.75)), "")


def _place(error: BaseException) -> str:
    """Return file:line of the application's code that failed: the last frame outside importlib and this package."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    package = str(Path(__file__).parent)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(("<frozen", package)) and Path(importlib.__file__) != Path(frame.filename)
    ]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "an unknown place"


def _suggestion(module: ModuleType) -> str:
    found = [name for name, value in vars(module).items() if isinstance(value, OwlClaw)]
    if found:
        return f"use {module.__name__}:{found[0]}"
    return "create one there: app = OwlClaw('my_app')"
