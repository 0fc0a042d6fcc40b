import sys

import pytest

from owlclaw_ray import ConfigurationError, OwlClaw
from owlclaw_ray.app_loader import add_plugins, application

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
