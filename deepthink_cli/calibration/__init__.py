"""How scores are corrected for a bias toward some labels: one file a method, one registry."""
