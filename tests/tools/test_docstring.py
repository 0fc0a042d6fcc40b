import inspect

from owlclaw_ray.tools.signature import parse_docstring


def test_google_style_gives_summary_and_parameters():
    parsed = parse_docstring(
        inspect.cleandoc("""Writes a report
        to a file.

        More that models do not need.

        Args:
            title (str): What it is about,
                in a few words.
            body: The text: all of it.

        Returns:
            path: nothing of this is a parameter
        """)
    )
    assert parsed.summary == "Writes a report to a file."
    assert parsed.parameters == {"title": "What it is about, in a few words.", "body": "The text: all of it."}


def test_sphinx_style_gives_parameters():
    parsed = parse_docstring("Looks.\n\n:param str where: The place,\n    as a path.\n:returns: what is there")
    assert parsed.summary == "Looks."
    assert parsed.parameters == {"where": "The place, as a path."}


def test_chinese_docstrings_work():
    parsed = parse_docstring("写报告。\n\n参数:\n    标题: 报告的标题\n")
    assert (parsed.summary, parsed.parameters) == ("写报告。", {"标题": "报告的标题"})


def test_a_docstring_of_parameters_only_has_no_summary():
    assert parse_docstring("Args:\n    x: it").summary == ""
    assert parse_docstring("").summary == ""
