"""Update rules: how a reading moves the memory. One file a rule, one registry."""
