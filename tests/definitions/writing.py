"""Definitions' folders for tests."""

SOUL = "You watch the machine."
IDENTITY = "# Watcher\n\n## My Capabilities\n- look\n\n## My Constraints\n- never guess\n"
SKILL = "---\nname: {name}\ndescription: About {name}.\n---\nDo {name}.\n"


def write_definition(folder, *, soul=SOUL, identity=IDENTITY, agent=None, skills=()):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("SOUL.md", soul), ("IDENTITY.md", identity), ("agent.yaml", agent)):
        if text is not None:
            (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    for name in skills:
        write_skill(folder, name, SKILL.format(name=name))
    return folder


def write_skill(folder, name, text):
    path = folder / "capabilities" / name / "SKILL.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path
