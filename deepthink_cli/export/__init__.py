"""Memories for other programs: PEFT, llama.cpp and mlx-lm."""
