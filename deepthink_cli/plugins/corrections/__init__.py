"""Further corrections of scores: a bias that makes labels equally likely, and the nearest mean hidden state."""
