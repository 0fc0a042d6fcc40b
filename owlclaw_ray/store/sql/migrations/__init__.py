"""The history of the schema, as Alembic revisions. They travel with the package, so an installed one can migrate."""

HEAD = "0011"
"""The newest revision."""
