"""Controls of Deep-Thinking: demonstrations that are read repeated, with other label words, alone, or in orders."""
