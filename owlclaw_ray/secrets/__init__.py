"""Secrets of tenants: encrypted in the store, read in the clear by what runs a tenant's tools."""
