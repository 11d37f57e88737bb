"""What `deepthink think --method` names beside Deep-Thinking: controls that change what is read, and Context Tuning."""
