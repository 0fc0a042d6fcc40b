"""Readers of public conversations with labelled questions, in the form in which they are published; none of them comes with this.

BEAM (https://github.com/mohammadtavakoli78/BEAM, dataset card CC BY-SA 4.0): `chats/<size>/<number>/chat.json` and beside it
`probing_questions/probing_questions.json`. A memory is a message of the user: an agent stores what it was told, not its own
replies. A batch of messages is a session; its time anchor says when, the order in it to the minute. What labels a reply counts
for the message that it answers. Questions without labelled evidence ("abstention") are left out.

QMSum (https://github.com/Yale-LILY/QMSum, MIT): a meeting a line. A memory is what is said one after another, up to 600
characters; what a question's text spans touch answers it. Meetings have no dates.

    python -m benchmarks.public_sets --beam BEAM/chats/100K --qmsum QMSum/data/ALL/jsonl/val.jsonl

Half of the conversations, chosen by a hash of their names, is *unseen*: no weight or rule was decided by looking at it.
"""

from __future__ import annotations

import argparse
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson

from benchmarks.retrieval import Conversation, Question, measured, shown
from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.domain.memory import Memory
from owlclaw_ray.ids import MemoryId
from owlclaw_ray.memory.embedders import LocalEmbedder

_LONGEST = 2_000
_BLOCK = 600
_MARK = re.compile(r"\s*->->.*$", re.DOTALL)
_MEETING = datetime(2026, 1, 1, 9, tzinfo=UTC)


def unseen(name: str) -> bool:
    """Return whether the conversation belongs to the half that nothing was tuned on."""
    return hashlib.sha256(name.encode()).digest()[0] % 2 == 1


def read_beam(folder: Path) -> Iterator[tuple[str, Conversation]]:
    """Return the conversations below a folder, with their names, such as `100K/3`."""
    for path in sorted(folder.glob("**/chat.json")):
        questions = orjson.loads((path.parent / "probing_questions" / "probing_questions.json").read_bytes())
        name = f"{path.parent.parent.name}/{path.parent.name}"
        yield name, _conversation(orjson.loads(path.read_bytes()), questions)


def _conversation(batches: Sequence[JsonObject], asked: Mapping[str, Sequence[JsonObject]]) -> Conversation:
    memories: list[Memory] = []
    answers_to: dict[int, MemoryId] = {}
    now = datetime.min.replace(tzinfo=UTC)
    for batch in batches:
        begun = now
        for message in (each for turn in batch["turns"] for each in turn):
            if message["role"] == "user":
                begun = max(begun, _anchor(message.get("time_anchor"), begun))
                now = max(now + timedelta(minutes=1), begun)
                text = _MARK.sub("", message["content"])[:_LONGEST]
                memories.append(
                    Memory(MemoryId(f"mem_{message['id']}"), text, (), now, session=str(batch["batch_number"]))
                )
            answers_to[message["id"]] = memories[-1].memory_id
    questions = [
        Question(
            each["question"],
            frozenset(answers_to[one] for one in _numbers(each.get("source_chat_ids")) if one in answers_to),
        )
        for each in (each for rows in asked.values() for each in rows)
    ]
    return Conversation(now + timedelta(days=1), tuple(memories), tuple(each for each in questions if each.answers))


def _anchor(text: str | None, otherwise: datetime) -> datetime:
    return datetime.strptime(text, "%B-%d-%Y").replace(hour=9, tzinfo=UTC) if text else otherwise


def _numbers(value: JsonValue) -> Iterator[int]:
    if isinstance(value, int):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _numbers(each)


def read_qmsum(path: Path) -> Iterator[tuple[str, Conversation]]:
    """Return the meetings of a file, named after their first words, as nothing else names them."""
    for line in path.read_bytes().splitlines():
        meeting = orjson.loads(line)
        yield hashlib.sha256(line).hexdigest()[:12], _meeting(meeting)


def _meeting(meeting: JsonObject) -> Conversation:
    blocks: list[list[int]] = []
    said = [f"{each['speaker']}: {each['content']}" for each in meeting["meeting_transcripts"]]
    for at, text in enumerate(said):
        if not blocks or sum(len(said[one]) for one in blocks[-1]) + len(text) > _BLOCK:
            blocks.append([])
        blocks[-1].append(at)
    of = {one: at for at, block in enumerate(blocks) for one in block}
    memories = tuple(
        Memory(
            MemoryId(f"mem_{at}"),
            "\n".join(said[one] for one in block)[:_LONGEST],
            (),
            _MEETING + timedelta(minutes=at),
            session="meeting",
        )
        for at, block in enumerate(blocks)
    )
    questions = [
        Question(
            each["query"],
            frozenset(
                memories[of[one]].memory_id
                for first, last in each["relevant_text_span"]
                for one in range(int(first), int(last) + 1)
                if one in of
            ),
        )
        for each in meeting["specific_query_list"]
    ]
    return Conversation(_MEETING + timedelta(days=1), memories, tuple(each for each in questions if each.answers))


def main() -> None:
    """Print what is found of the sets that are named, for each half."""
    parser = argparse.ArgumentParser(description="Recall on public sets, half of which was never looked at.")
    parser.add_argument("--beam", type=Path, help="a folder of BEAM's chats, such as chats/100K")
    parser.add_argument("--qmsum", type=Path, help="a file of QMSum, such as data/ALL/jsonl/val.jsonl")
    arguments = parser.parse_args()
    sets = {"BEAM": (read_beam, arguments.beam), "QMSum": (read_qmsum, arguments.qmsum)}
    embedder = LocalEmbedder()
    for name, (read, path) in sets.items():
        if path is None:
            continue
        conversations = list(read(path))
        for half in (False, True):
            chosen = [each for one, each in conversations if unseen(one) is half]
            asked = sum(len(each.questions) for each in chosen)
            print(f"{name}, {'unseen' if half else 'seen'} half, {len(chosen)} conversations, {asked} questions")
            for how, value in measured(chosen, embedder).items():
                print(f"  {shown(how, value)}", flush=True)


if __name__ == "__main__":
    main()
