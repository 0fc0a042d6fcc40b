"""SKILL.md files: their frontmatter, checked and parsed."""
