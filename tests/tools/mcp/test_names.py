"""Names of MCP tools."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from owlclaw_ray.tools.mcp.server_tools import canonical_mcp_name, escaped
from owlclaw_ray.tools.names import tool_name_problems, wire_name

CHARACTERS = st.characters(exclude_categories=["Cs"])


@pytest.mark.parametrize(
    ("tool", "name"),
    [
        ("read_file", "mcp.files.read_file"),
        ("browser.click", "mcp.files.browser.click"),
        ("read file/all", "mcp.files.read_x20file_x2Fall"),
        ("查询", "mcp.files._xE6_x9F_xA5_xE8_xAF_xA2"),
        (".hidden..", "mcp.files._x2Ehidden._x2E"),
    ],
)
def test_a_tool_is_named_after_its_server(tool, name):
    """tool-registry: mcp.<server_id>.<tool_name>."""
    assert canonical_mcp_name("files", tool) == name


@given(st.text(CHARACTERS, min_size=1))
@example("_x41")
@example("a.b")
@example("_x5F_x")
def test_the_name_that_a_server_gives_can_always_be_read_back(tool):
    """tool-registry: name mangling is reversible."""
    parts = re.split("_x([0-9A-F]{2})", escaped(tool))
    encoded = (bytes.fromhex(part) if index % 2 else part.encode() for index, part in enumerate(parts))
    assert b"".join(encoded).decode() == tool


@given(st.text(CHARACTERS, min_size=1, max_size=300))
def test_model_providers_accept_every_name(tool):
    name = canonical_mcp_name("files", tool)
    assert tool_name_problems(name) == []
    assert len(wire_name(name)) <= 64


def test_names_that_are_too_long_are_still_told_apart():
    one, other = (canonical_mcp_name("files", "read_" * 30 + end) for end in ("all", "one"))
    assert one != other
    assert one.startswith("mcp.files.read_read_")
