"""Context Tuning (CT-KV): improve the keys and values of the demonstrations by gradients."""
