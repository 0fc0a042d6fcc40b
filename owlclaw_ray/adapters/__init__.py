"""Technologies behind the ports: one module or folder each, none importing another."""
