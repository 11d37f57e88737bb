"""Context Tuning (CT-KV): a memory that is trained by gradients."""
