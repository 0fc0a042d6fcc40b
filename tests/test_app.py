import subprocess
import sys
import threading
import types
from pathlib import Path

import pytest

import owlclaw_ray
from owlclaw_ray import ConfigurationError, OwlClaw, load_app
from owlclaw_ray.own_packages import import_path, namesakes


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith(("shop", "bakery")):
            del sys.modules[name]


def problem_of(import_path, folder):
    with pytest.raises(ConfigurationError) as caught:
        load_app(import_path, folder)
    return str(caught.value)


def test_the_public_names_are_these():
    assert owlclaw_ray.__all__ == [
        "AgentRef",
        "ApprovalNeededError",
        "CallTarget",
        "Change",
        "ConfigurationError",
        "Deny",
        "OwlClaw",
        "OwlClawError",
        "ToolContext",
        "ToolError",
        "ToolResult",
        "ToolUse",
        "load_app",
    ]
    assert owlclaw_ray.__all__ == dir(owlclaw_ray)
    assert all(getattr(owlclaw_ray, name).__name__ == name for name in owlclaw_ray.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        owlclaw_ray.nothing  # noqa: B018 (the attribute is the point)


def test_importing_the_package_or_the_engine_loads_nothing_heavy():
    heavy = ["pydantic", "jsonschema", "yaml", "litellm", "lancedb", "sqlalchemy", "ray"]
    modules = ["runs.skill_selection", "definitions.skills.text", "models.sanitise", "models.tokens"]
    code = "\n".join(
        [
            "import sys, owlclaw_ray",
            *(f"import owlclaw_ray.{module}" for module in modules),
            f"print([name for name in {heavy} if name in sys.modules])",
        ]
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_decorators_without_parentheses_or_without_a_name_take_the_functions(folder):
    source = Path(__file__).with_name("typed_application.py").read_text()
    (folder / "shop.py").write_text(source)
    registry = load_app("shop:app", folder).registry

    named = ["catalogue.find", "desk.price", "desk.refund", "desk.sell", "desk.stock", "desk.weight"]
    assert [each.name for each in registry.definitions()] == named
    assert registry.states() == ("opening-hours", "orders", "till")
    assert registry.event_sources.names == ("letters", "mail")
    assert sys.modules["shop"].price("four") == 4


def test_what_is_no_function_is_refused_with_its_line_without_parentheses_too(folder):
    (folder / "shop.py").write_text(
        "from owlclaw_ray import OwlClaw\napp = OwlClaw('shop')\n\n@app.tool\nclass Basket: ...\n"
    )

    assert "shop.py:4: tool 'shop.Basket'" in problem_of("shop:app", folder)
    with pytest.raises(ConfigurationError, match="decorator: is given 5, which is no name"):
        OwlClaw("shop").state(5)


def test_an_app_is_loaded_from_its_folder(folder):
    (folder / "shop.py").write_text("from owlclaw_ray import OwlClaw\napp = OwlClaw('shop')\n")
    app = load_app("shop:app", folder)
    assert isinstance(app, OwlClaw)
    assert load_app("shop:app", folder) is app


def test_apps_of_the_same_module_name_in_two_folders_do_not_mix(folder):
    for name in ("one", "two"):
        (folder / name).mkdir()
        (folder / name / "shop.py").write_text(f"from owlclaw_ray import OwlClaw\napp = OwlClaw('{name}')\n")
    assert [load_app("shop:app", folder / name).name for name in ("one", "two", "one")] == ["one", "two", "one"]


def test_an_app_of_another_folder_is_loaded_while_other_threads_import(folder):
    interval = sys.getswitchinterval()
    stop = threading.Event()

    def import_and_forget():
        while not stop.is_set():
            for number in range(200):
                sys.modules[f"made_up_{number}"] = types.ModuleType("made_up")
            for number in range(200):
                del sys.modules[f"made_up_{number}"]

    importing = threading.Thread(target=import_and_forget)
    sys.setswitchinterval(1e-6)
    importing.start()
    try:
        for number in range(30):
            (folder / f"{number}").mkdir()
            (folder / f"{number}" / "shop_desk.py").write_text(
                f"from owlclaw_ray import OwlClaw\n\napp = OwlClaw('n{number}')\n"
            )
            assert load_app("shop_desk:app", folder / f"{number}").name == f"n{number}"
    finally:
        stop.set()
        importing.join()
        sys.setswitchinterval(interval)


def test_an_app_may_be_in_a_package_and_inside_an_object(folder):
    (folder / "bakery").mkdir()
    (folder / "bakery" / "__init__.py").touch()
    (folder / "bakery" / "main.py").write_text("import owlclaw_ray\nclass Box:\n    app = owlclaw_ray.OwlClaw('b')\n")
    assert load_app("bakery.main:Box.app", folder).name == "b"


@pytest.mark.parametrize("import_path", ["shop", "shop:", ":app", "shop.py:app/", "a b:app", ""])
def test_what_is_no_import_path_is_refused(folder, import_path):
    assert "app:app for `app = OwlClaw(…)` in app.py" in problem_of(import_path, folder)


def test_a_missing_module_is_named_with_the_folder(folder):
    assert f"there is no module 'shop' in {folder}" in problem_of("shop:app", folder)


def test_a_missing_attribute_comes_with_a_suggestion(folder):
    (folder / "shop.py").write_text("from owlclaw_ray import OwlClaw\nthe_app = OwlClaw('shop')\nx = 1\n")
    assert "module shop has no 'app' (use shop:the_app)" in problem_of("shop:app", folder)
    assert "x is of type int, not OwlClaw (use shop:the_app)" in problem_of("shop:x", folder)


def test_a_module_without_an_app_says_how_to_make_one(folder):
    (folder / "shop.py").touch()
    assert "create one there" in problem_of("shop:app", folder)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = 1\nx.y\n", "shop.py:2 with AttributeError: 'int' object has no attribute 'y'"),
        ("def f(:\n", "shop.py:1 with SyntaxError"),
        (
            "\nimport not_installed_anywhere\n",
            "shop.py:2 with ModuleNotFoundError: No module named 'not_installed_anywhere'",
        ),
        ("raise SystemExit(1)\n", "shop.py:1 with SystemExit"),
    ],
)
def test_an_error_while_importing_shows_file_and_line(folder, source, expected):
    (folder / "shop.py").write_text(source)
    assert expected in problem_of("shop:app", folder)


def test_a_wrong_registration_shows_file_line_and_every_problem(folder):
    (folder / "shop.py").write_text(
        "from owlclaw_ray import OwlClaw\napp = OwlClaw('shop')\n@app.handler('sell')\ndef sell(x, y): ...\n"
    )
    problem = problem_of("shop:app", folder)
    assert "shop.py:3: tool 'shop.sell': x: has no type annotation" in problem
    assert "y: has no type annotation" in problem


def test_an_application_may_not_have_the_name_of_one_of_our_packages(folder):
    (folder / "serve.py").write_text("from owlclaw_ray import OwlClaw\napp = OwlClaw('shop')\n")
    assert "rename serve.py or the folder serve, such as to my_serve" in problem_of("serve:app", folder)


def test_modules_beside_the_application_that_are_called_like_our_packages_are_never_imported(folder):
    for name in ("serve", "actors"):
        (folder / f"{name}.py").write_text("raise SystemExit('imported')\n")
    (folder / "shop_plain.py").write_text("from owlclaw_ray import OwlClaw\napp = OwlClaw('shop')\n")
    code = f"""
from pathlib import Path
from owlclaw_ray import load_app
load_app("shop_plain:app", Path({str(folder)!r}))
import actors.plan, serve.cli.entry
print(serve.cli.entry.__file__)
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("serve/cli/entry.py")


def test_an_import_of_a_module_that_is_called_like_one_of_our_packages_names_the_file_to_rename(folder):
    (folder / "actors").mkdir()
    (folder / "actors" / "trader.py").write_text("class Trader: ...\n")
    (folder / "shop_actors.py").write_text("from actors.trader import Trader\n")
    said = problem_of("shop_actors:app", folder)
    assert f"{folder / 'actors'}: the application cannot import it: actors is a package of OwlClaw" in said
    assert "rename it, such as to my_actors" in said


def test_a_folder_without_python_files_and_our_own_checkout_are_no_namesakes(folder):
    (folder / "serve").mkdir()
    (folder / "serve" / "notes.txt").write_text("nothing to import")
    assert not [*namesakes(folder)]
    assert not [*namesakes(Path(owlclaw_ray.__file__).parents[1])]


def test_the_import_path_of_processes_is_left_alone_unless_it_has_modules_that_are_called_like_our_packages(folder):
    here = Path(owlclaw_ray.__file__).parents[1]
    assert import_path("") == ""
    assert import_path(f"{folder}:/elsewhere") == f"{folder}:/elsewhere"
    (folder / "actors.py").write_text("")
    assert import_path(f"/elsewhere:{folder}") == f"{here}:/elsewhere:{folder}"
