from owlclaw_ray.testing.store_contract import StoreContract


class TestSqlStore(StoreContract):
    pass
