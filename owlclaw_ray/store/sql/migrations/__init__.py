"""The history of the schema, as Alembic revisions. They travel with the package, so an installed one can migrate."""

FIRST = "0011"
"""The first schema. Databases of development versions before it are not migrated."""
HEAD = "0038"
"""The newest revision."""
OLDEST = "0012"
"""The oldest revision whose runtimes may work on a database of the newest one, see ADR 51. Raised by a migration that takes away or
changes what they use."""
OLDEST_RELEASE = "0.1.0"
"""The first release with that schema or a newer one: what a cluster of an older one is upgraded to first."""
