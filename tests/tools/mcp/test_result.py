"""What models are given of what servers answer."""

import base64

import pytest

from owlclaw_ray.tools.failure import ToolFailureError
from owlclaw_ray.tools.mcp.adapter import content_of

TEXT = {"type": "text", "text": "hello"}
PIXEL = base64.b64encode(b"pixel").decode()


def keep(index, media_type, content):
    return {"artifact_id": f"art_{index}", "size_bytes": len(content)}


def normal(*blocks, keep=keep, **more):
    return content_of("mcp.files.read", {"content": list(blocks), **more}, keep)


def test_a_lone_text_is_a_text():
    assert normal(TEXT) == "hello"


def test_nothing_is_nothing():
    assert normal() is None


def test_several_blocks_are_a_list():
    assert normal(TEXT, TEXT) == [TEXT, TEXT]


def test_structured_content_is_taken_as_it_is_with_what_its_text_does_not_say():
    image = {"type": "image", "mimeType": "image/png", "data": PIXEL}
    told = {"type": "image", "media_type": "image/png", "size_bytes": 5, "artifact_ref": keep(1, "", b"pixel")}

    assert normal(TEXT, structuredContent={"n": 1}) == {"n": 1}
    assert normal(structuredContent=0) == 0
    assert normal(TEXT, image, structuredContent={"n": 1}) == {"structured": {"n": 1}, "content": [told]}


def test_images_and_blobs_become_artifacts():
    blob = {"type": "resource", "resource": {"uri": "file:///a.pdf", "mimeType": "application/pdf", "blob": PIXEL}}
    assert normal({"type": "audio", "mimeType": "audio/wav", "data": PIXEL}, blob) == [
        {"type": "audio", "media_type": "audio/wav", "size_bytes": 5, "artifact_ref": keep(0, "", b"pixel")},
        {
            "type": "resource",
            "uri": "file:///a.pdf",
            "media_type": "application/pdf",
            "size_bytes": 5,
            "artifact_ref": keep(1, "", b"pixel"),
        },
    ]


def test_bytes_that_cannot_be_kept_are_described():
    nothing = lambda *_: None  # noqa: E731
    image = {"type": "image", "mimeType": "image/png", "data": PIXEL}
    assert normal(image, keep=nothing) == [
        {"type": "image", "media_type": "image/png", "size_bytes": 5, "note": "its bytes are not kept"}
    ]
    assert normal({**image, "data": "no base64!"})[0]["note"] == "it is not valid base64"


def test_resources_and_links_to_them_are_told():
    resource = {"type": "resource", "resource": {"uri": "file:///a", "mimeType": "text/markdown", "text": "# A"}}
    link = {"type": "resource_link", "uri": "file:///b", "name": "b", "size": 3, "icons": []}
    assert normal(resource, link, {"type": "smell"}) == [
        {"type": "resource", "uri": "file:///a", "media_type": "text/markdown", "text": "# A"},
        {"type": "resource_link", "uri": "file:///b", "name": "b", "size": 3},
        {"type": "smell", "note": "this kind of content is not known here"},
    ]


def test_an_error_of_a_tool_has_the_words_of_the_server():
    with pytest.raises(ToolFailureError, match="no such file: hello") as caught:
        normal({"type": "text", "text": "no such file: hello"}, structuredContent={"code": 2}, isError=True)
    assert (caught.value.type, caught.value.retryable, caught.value.details) == ("execution_failed", False, {"code": 2})
    with pytest.raises(ToolFailureError, match="did not say why"):
        normal(isError=True)
