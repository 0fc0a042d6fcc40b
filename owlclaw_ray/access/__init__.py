"""Who may do what: keys, tenants, and who a request acts for."""
