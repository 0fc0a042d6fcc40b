"""Variables with secrets of the runtime itself: whoever starts it reads them, and no other process is told."""

STORE_URL_VARIABLE = "OWLCLAW_STORE_URL"
TOKEN_VARIABLE = "OWLCLAW_HATCHET__TOKEN"  # noqa: S105 - the name of a variable
KEYS_VARIABLE = "OWLCLAW_SECRETS_KEY"
OWN_VARIABLES = (STORE_URL_VARIABLE, TOKEN_VARIABLE, KEYS_VARIABLE)
