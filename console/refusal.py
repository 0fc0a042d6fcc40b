"""A form that was refused: it comes back with what was typed, and with why, so that nobody has to write it again."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import unquote

from msgspec import Struct

from console.visits import SentForm
from owlclaw_ray.errors import Problem
from serve.problems import ProblemDetails


class Refusal(Struct, frozen=True):
    """What was sent to a path, and why nothing came of it. Pages ask it by the action of each of their forms, as it is in the page."""

    path: str = ""
    form: SentForm = SentForm(())
    problems: Sequence[Problem] = ()

    @classmethod
    def of(cls, path: str, form: SentForm, problem: ProblemDetails) -> Refusal:
        """Return the refusal with each thing that is wrong, or with the problem in one sentence."""
        listed = [
            Problem(each["where"].removeprefix("body."), each["what"], each["fix"] or "")
            for each in problem.extras.get("problems", ())
        ]
        return cls(path, form, listed or [Problem("", problem.detail)])

    def concerns(self, action: str) -> bool:
        """Return whether it is of the form with that action."""
        return bool(self.path) and self.path == unquote(action)

    def text(self, action: str, name: str, otherwise: object = "") -> object:
        """Return what was typed into a field, or what is in it otherwise."""
        return self.form.text(name) if self.concerns(action) else otherwise

    def all(self, action: str, name: str) -> Sequence[str]:
        """Return what was chosen in a form that otherwise has nothing chosen."""
        return self.form.all(name) if self.concerns(action) else ()
