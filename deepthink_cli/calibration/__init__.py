"""How scores are corrected for a bias toward some labels: the methods, their texts, and applying them."""
