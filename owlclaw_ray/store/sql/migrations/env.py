"""Alembic's entry: migrates on the connection, and inside the transaction, that `migrating` hands over."""

from alembic import context

from owlclaw_ray.store.sql.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=True,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
