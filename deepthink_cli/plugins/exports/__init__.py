"""Memories for PEFT and transformers, for llama.cpp, and for mlx-lm."""
