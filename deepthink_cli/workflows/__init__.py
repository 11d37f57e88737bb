"""What the commands do, without printing."""
