import sys

import pytest

from owlclaw_ray import ConfigurationError, OwlClaw
from owlclaw_ray.app_loader import add_plugins, application
from owlclaw_ray.domain.permission import PermissionPolicy, Verdict
from owlclaw_ray.policy.permission import judge

WEATHER = """
def register(app):
    @app.tool("weather.now")
    def now(city: str) -> str:
        \"\"\"Say how the weather is.\"\"\"
        return f"fine in {city}"
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install a package whose entry points are these lines, with a module of this text."""

    def install(entry_points, weather=WEATHER):
        folder = tmp_path / "site-packages"
        info = folder / "weather_plugin-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: weather-plugin\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[owlclaw.tools]\n" + entry_points)
        (folder / "weather_plugin.py").write_text(weather)
        monkeypatch.syspath_prepend(folder)

    yield install
    sys.modules.pop("weather_plugin", None)


def names(app):
    return [each.name for each in app.registry.definitions()]


def test_an_installed_package_adds_its_tools_to_every_application_once(installed):
    installed("weather = weather_plugin:register\n")

    app = application(None)
    add_plugins(app)

    assert names(app) == ["weather.now"]
    assert names(application("")) == ["weather.now"]


def test_a_plug_in_does_not_take_the_name_of_another_tool(installed):
    installed("weather = weather_plugin:register\n")
    app = OwlClaw("shop")
    app.tool("weather.now")(lambda: None)

    with pytest.raises(ConfigurationError) as caught:
        add_plugins(app)

    assert str(caught.value) == (
        "plug-in 'weather' (weather_plugin:register): tool 'weather.now': is registered twice "
        "(give one of them another name)"
    )


def test_every_plug_in_that_cannot_be_used_is_named(installed):
    installed(
        "gone = weather_plugin:nothing\nweather = weather_plugin:register\n",
        "def register(app):\n    raise SystemExit('no licence')\n",
    )

    with pytest.raises(ConfigurationError) as caught:
        application(None)

    gone, weather = map(str, caught.value.problems)
    assert gone.startswith("plug-in 'gone' (weather_plugin:nothing): failed with AttributeError")
    assert weather == (
        "plug-in 'weather' (weather_plugin:register): failed with SystemExit: no licence (mend it, or remove its package)"
    )


MAIL = """
def register(app):
    @app.handler("mailer.send_all", tags=["network"])
    def send_all(text: str) -> str:
        return text

    @app.tool("mailer.count", permission="readonly")
    def count() -> int:
        return 1
"""


def test_tools_of_installed_packages_ask_as_all_do_that_others_wrote(installed):
    installed("mailer = weather_plugin:register\n", MAIL)
    app = OwlClaw("shop")
    app.handler("before")(lambda: None)
    add_plugins(app)
    app.handler("after")(lambda: None)

    verdicts = {each.name: judge(PermissionPolicy(), each)[0] for each in app.registry.definitions()}

    assert verdicts == {
        "shop.before": Verdict.ALLOW,
        "mailer.send_all": Verdict.ASK,
        "mailer.count": Verdict.ALLOW,
        "shop.after": Verdict.ALLOW,
    }


def test_a_package_that_fails_leaves_no_doubt_about_what_the_application_registers(installed):
    installed("mailer = weather_plugin:nothing\n", MAIL)
    app = OwlClaw("shop")
    with pytest.raises(ConfigurationError):
        add_plugins(app)

    app.handler("after")(lambda: None)

    [after] = app.registry.definitions()
    assert judge(PermissionPolicy(), after)[0] is Verdict.ALLOW
