"""Tools that a JSON file describes and a program carries out (T20)."""
