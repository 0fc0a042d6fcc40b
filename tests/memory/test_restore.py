from owlclaw_ray.memory.restore import put_back


def test_an_edited_file_is_put_back(tmp_path):
    (tmp_path / "MEMORY.md").write_bytes(b"old\n")

    assert put_back(tmp_path, b"old\n", b"new\n") is None
    assert (tmp_path / "MEMORY.md").read_bytes() == b"new\n"


def test_what_was_appended_meanwhile_stays_at_the_end(tmp_path):
    (tmp_path / "MEMORY.md").write_bytes(b"old\n## mem_1\nsince then\n")

    assert put_back(tmp_path, b"old\n", b"new, without a line feed") is None
    assert (tmp_path / "MEMORY.md").read_bytes() == b"new, without a line feed\n## mem_1\nsince then\n"


def test_a_file_that_was_changed_otherwise_stays_and_the_edited_one_is_kept_beside_it(tmp_path):
    for now in (b"other\n", b""):
        (tmp_path / "MEMORY.md").write_bytes(now)
        kept = put_back(tmp_path, b"old\n", b"new\n")
        assert kept == tmp_path / "MEMORY.edited.md"
        assert ((tmp_path / "MEMORY.md").read_bytes(), kept.read_bytes()) == (now, b"new\n")
