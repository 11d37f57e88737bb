"""How demonstrations are chosen from a task's training rows: one file a method, one registry."""
