"""Memories for other programs: PEFT and llama.cpp."""
