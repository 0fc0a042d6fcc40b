"""The ledger: its hash chain, the redaction of secrets, and the heads that are noted outside the store."""
