"""Checked YAML: documents that know their lines, and problems that say what would be right."""
