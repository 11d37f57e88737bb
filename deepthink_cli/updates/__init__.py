"""Update rules, which combine a new reading with the memory: one file per rule, and a registry."""
