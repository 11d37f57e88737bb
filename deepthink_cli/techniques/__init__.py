"""What `deepthink think --technique` names beside Deep-Thinking: controls, which change what is read, and training."""
