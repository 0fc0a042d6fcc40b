"""Ray shells: one long-lived process a file, each around a plain object of `owlclaw_ray`."""
