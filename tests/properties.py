"""How often the 23 numbered properties of the requirements are tried: four times as often as any other."""

from hypothesis import settings

examples = settings(max_examples=4 * settings.default.max_examples)
