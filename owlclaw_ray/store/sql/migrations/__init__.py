"""The history of the schema, as Alembic revisions. They travel with the package, so an installed one can migrate."""

FIRST = "0011"
"""The first schema. Databases of development versions before it are not migrated."""
HEAD = "0013"
"""The newest revision."""
