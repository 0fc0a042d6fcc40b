"""The store on SQLAlchemy Core: SQLite for one node, PostgreSQL for a cluster. Open one with `opening.open_store`."""
